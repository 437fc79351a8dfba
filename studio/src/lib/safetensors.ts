// Safetensors bytes in, typed arrays out. The header is JSON behind an 8-byte length; data follows it.

export interface Tensor {
  shape: number[];
  data: Uint8Array | Float32Array | Int32Array;
}

export function readTensors(buffer: ArrayBuffer): Record<string, Tensor> {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors: Record<string, Tensor> = {};
  for (const [name, about] of Object.entries<any>(header)) {
    if (name === "__metadata__") continue;
    const [from, to] = about.data_offsets as [number, number];
    const bytes = buffer.slice(8 + length + from, 8 + length + to);
    tensors[name] = { shape: about.shape, data: typed(about.dtype, bytes) };
  }
  return tensors;
}

function typed(dtype: string, bytes: ArrayBuffer): Tensor["data"] {
  if (dtype === "U8") return new Uint8Array(bytes);
  if (dtype === "F32") return new Float32Array(bytes);
  if (dtype === "I32") return new Int32Array(bytes);
  if (dtype === "F16") return Float32Array.from(new Uint16Array(bytes), half);
  throw new Error(`the page cannot read tensors of type ${dtype}`);
}

/** One 16-bit float as a number; browsers are only now getting arrays of them. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * 2 ** -14 * (fraction / 1024);
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
}
