// Words that the server sends in English: what each family is used for, and its position scheme.
import { speech } from "./i18n.svelte";

const CHINESE: Record<string, string> = {
  "any text to any text": "任意文本到任意文本",
  "classification, tagging, question answering": "分类、标注、问答",
  "classification, tagging, question answering, at a fraction of the time": "分类、标注、问答，用时只是一小部分",
  "classification, tagging, question answering, in Chinese and English": "中英文分类、标注、问答",
  "classification, tagging, question answering, retrieval": "分类、标注、问答、检索",
  "continuation of code": "代码续写",
  "continuation": "续写",
  "continuation, dialogue": "续写、对话",
  "continuation, in 46 languages": "46 种语言的续写",
  "continuation, programs": "续写、编程",
  "conversation": "对话",
  "labels and tags in long documents": "长文档的分类、标注",
  "labels, tags and answers in long documents": "长文档的分类、标注、问答",
  "labels, tags, answers": "分类、标注、问答",
  "labels, tags, spans": "分类、标注、抽取答案",
  "masked residues, labels and tags of proteins": "蛋白质：被掩码的残基、分类、标注",
  "programs from comments, continuation": "由注释写程序、续写",
  "programs: summaries, translation, repair": "程序：摘要、翻译、修复",
  "retrieval, classification, tagging": "检索、分类、标注",
  "retrieval, classification, tagging, in fifteen languages": "十五种语言的检索、分类、标注",
  "retrieval, classification, tagging, question answering in long texts": "长文本的检索、分类、标注、问答",
  "retrieval, classification, tagging, question answering": "检索、分类、标注、问答",
  "summaries of long documents": "长文档摘要",
  "summaries": "摘要",
  "summaries, translation, repair of text": "摘要、翻译、文本修复",
  "text much longer than one call": "远长于一次调用的文本",
  "the same, in French": "同上，法语",
  "the same, in a hundred languages": "同上，一百种语言",
  "translation between a hundred or two hundred languages": "一两百种语言互译",
  "translation between many languages": "多语言互译",
  "translation": "翻译",
  "very long texts in little memory": "用很少内存处理超长文本",
};

// Position schemes, by the word they begin with.
const SCHEMES: [RegExp, string][] = [
  [/^sinusoidal/, "正弦位置编码"],
  [/^learned, (\d+)/, "可学习的位置向量，$1 个"],
  [/^rotary, theta (\S+)/, "旋转位置编码（RoPE），theta $1"],
  [/^(\d+) distance buckets/, "相对距离偏置，$1 个桶"],
  [/^linear distance penalty/, "线性距离惩罚"],
  [/^none/, "无"],
];

export const scheme = (english: string): string => {
  const found = speech.language === "zh" && SCHEMES.find(([begins]) => begins.test(english));
  return found ? english.replace(found[0], found[1]) : english;
};

export const uses = (english: string): string => (speech.language === "zh" ? (CHINESE[english] ?? english) : english);
