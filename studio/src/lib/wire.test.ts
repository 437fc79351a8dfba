import { expect, test } from "vitest";
import { splitter } from "./events";
import { half, readTensors } from "./safetensors";

function packed(header: object, data: Uint8Array): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const buffer = new ArrayBuffer(8 + text.length + data.length);
  new DataView(buffer).setBigUint64(0, BigInt(text.length), true);
  new Uint8Array(buffer, 8).set(text);
  new Uint8Array(buffer, 8 + text.length).set(data);
  return buffer;
}

test("tensors are read where the header says they are", () => {
  const data = new Uint8Array([1, 2, 3, 255, 0x00, 0x3c, 0x00, 0xc0]);
  const read = readTensors(packed({
    __metadata__: { made: "here" },
    sqrt: { dtype: "U8", shape: [2, 2], data_offsets: [0, 4] },
    row: { dtype: "F16", shape: [2], data_offsets: [4, 8] },
  }, data));
  expect(read.sqrt.shape).toEqual([2, 2]);
  expect([...read.sqrt.data]).toEqual([1, 2, 3, 255]);
  expect([...read.row.data]).toEqual([1, -2]);
  expect(Object.keys(read)).toEqual(["sqrt", "row"]);
});

test("an unknown type is said, not guessed", () => {
  const made = packed({ x: { dtype: "F8", shape: [1], data_offsets: [0, 1] } }, new Uint8Array(1));
  expect(() => readTensors(made)).toThrow("F8");
});

test.each([[0x0000, 0], [0x3c00, 1], [0xbc00, -1], [0x3555, 0.333251953125], [0x0001, 2 ** -24], [0x7bff, 65504], [0x7c00, Infinity]])(
  "half %i is %f", (bits, value) => expect(half(bits)).toBe(value));

test("events are whole, however their bytes are cut", () => {
  const text = 'id: 3\nevent: token\ndata: {"text": "猫"}\n\n: still here\n\nevent: done\ndata: {"a": 1}\n\n';
  for (const size of [1, 2, 5, 1000]) {
    const feed = splitter();
    const found = [];
    for (let i = 0; i < text.length; i += size) found.push(...feed(text.slice(i, i + size)));
    expect(found).toEqual([
      { id: "3", event: "token", data: { text: "猫" } },
      { event: "done", data: { a: 1 } },
    ]);
  }
});
