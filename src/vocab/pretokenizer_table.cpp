#include "pretokenizer.h"

// The rules by which the models' own tokenizers cut text, in PCRE2 spelling (UTF | UCP). Three things are spelt with
// care: white space is \p{wspace}, because \s also takes U+180E; Han is \p{sc:Han}, the script alone; contractions list
// both cases instead of (?i), which would take U+017F as an s.
//
// Where a rule as published takes quadratic time or a stack frame per character on hostile text, an equal one stands
// here: digit groups look ahead once per run of digits (after a group the rest of the run is a multiple of three),
// white space that failed at the head of its run is not tried again from within, and repeated groups with one way to
// match are possessive.

namespace llama {

namespace {

// An alternative per line reads better than filled paragraphs.
// clang-format off

#define RE_GPT2 R"~('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{wspace}\p{L}\p{N}]+|\p{wspace}+(?!\)~"\
            R"~(P{wspace})|\p{wspace}+)~"
#define RE_GROUP3 R"~((?<=\p{N})\p{N}{3}|\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N})))~"
#define RE_ENDINGS R"~((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))~"
#define RE_UPPER R"~([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])~"
#define RE_LOWER R"~([\p{Ll}\p{Lm}\p{Lo}\p{M}])~"
#define RE_LINE R"~(\p{wspace}*[\r\n]+)~"
#define RE_GAP R"~(\p{wspace}+(?!\P{wspace})|\p{wspace}+)~"

const PreTokenizerGroup kGroups[] = {
    {"llama3",
        {RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?\p{L}+)~"
         R"~(|\p{N}{1,3})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"jais-2",
        {RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?\p{L}+)~"
         R"~(|\p{N}{1,3})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)~"
         R"~(|(?<![^\P{wspace}\r\n]))~" RE_LINE
         R"~(|\p{wspace}{512}(?!\P{wspace}))~"
         R"~(|\p{wspace}{256}(?!\P{wspace}))~"
         R"~(|\p{wspace}{128}(?!\P{wspace}))~"
         R"~(|\p{wspace}{64}(?!\P{wspace}))~"
         R"~(|\p{wspace}{32}(?!\P{wspace}))~"
         R"~(|\p{wspace}{16}(?!\P{wspace}))~"
         R"~(|\p{wspace}{8}(?!\P{wspace}))~"
         R"~(|\p{wspace}{4}(?!\P{wspace}))~"
         R"~(|\p{wspace}{1,2}(?!\P{wspace}))~"
         R"~(|\p{wspace}{1})~"}},
    {"deepseek-llm",
        {R"~([\r\n])~",
         R"~(\p{wspace}?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫ)~"
            R"~(ᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ)~"
            R"~(-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)~",
         R"~(\p{wspace}?[!-/:-~！-／：-～‘-‟　-。]+)~",
         R"~((?<!\p{wspace})\p{wspace}+\z)~",
         R"~([一-龥ࠀ-一가-퟿]+)~",
         R"~(\p{N}+)~"}},
    {"deepseek-v3",
        {R"~(\p{N}{1,3})~",
         R"~([一-龥぀-ゟ゠-ヿ]+)~",
         R"~([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)~"
         R"~(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)~"
         R"~(| ?[\p{P}\p{S}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"youtu",
        {R"~([가-힣ㄱ-ㆎ]+)~"
         R"~(|[！…“”‘’—：；，、-〿︰-﹏]+)~"
         R"~(|[ㄅ-ㄯ]+)~"
         R"~(|[一-龥぀-ゟ゠-ヿ]+)~",
         R"~([^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(*)~" RE_LOWER R"~(+)~" RE_ENDINGS R"~(?)~"
         R"~(|[^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(+)~" RE_LOWER R"~(*)~" RE_ENDINGS R"~(?)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n/]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"deepseek-coder",
        {R"~([\r\n])~",
         R"~(\p{wspace}?\p{L}+)~",
         R"~(\p{wspace}?\p{P}+)~",
         R"~([一-龥ࠀ-一가-퟿]+)~",
         R"~(\p{N})~"}},
    {"falcon",
        {R"~([\p{P}\$\+<=>\^~\|`]+)~",
         RE_GPT2,
         R"~([0-9][0-9][0-9])~"}},
    {"starcoder",
        {R"~(\p{N})~",
         RE_GPT2}},
    {"gpt2",
        {RE_GPT2}},
    {"qwen2",
        {RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?\p{L}+)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"qwen35",
        {RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{M}\p{N}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"bloom",
        {R"~( ?[^(\p{wspace}|.,!?…。，、।۔،)]+)~"}},
    {"viking",
        {R"~( ?[^(\p{wspace}|.,!?…。，、।۔،)]+)~",
         R"~(\p{N})~"}},
    {"tekken",
        {R"~([^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(*)~" RE_LOWER R"~(+)~"
         R"~(|[^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(+)~" RE_LOWER R"~(*)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n/]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"chameleon",
        {R"~(<sentinel:[0-9]+>)~",
         R"~((?:IMGIMG)(?:(?:A|B|C|D|E|F|G|H|I){1,4})Z)~",
         R"~((?:[\t\n]|    |  ))~",
         R"~(\p{N})~",
         R"~([\p{P}!-/:-@\[-`{-~])~",
         RE_GPT2}},  // one text of several literals. NOLINT(bugprone-suspicious-missing-comma)
    {"gpt-4o",
        {R"~([^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(*)~" RE_LOWER R"~(+)~" RE_ENDINGS R"~(?)~"
         R"~(|[^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(+)~" RE_LOWER R"~(*)~" RE_ENDINGS R"~(?)~"
         R"~(|\p{N}{1,3})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n/]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"granite-embed-multi-97m",
        {R"~([^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(*)~" RE_LOWER R"~(+)~" RE_ENDINGS R"~(?)~"
         R"~(|[^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(+)~" RE_LOWER R"~(*)~" RE_ENDINGS R"~(?)~"
         R"~(|\p{N}{1,3})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n/]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"tiny_aya",
        {RE_GROUP3,
         R"~([^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(*)~" RE_LOWER R"~(+)~" RE_ENDINGS R"~(?)~"
         R"~(|[^\r\n\p{L}\p{N}]?)~" RE_UPPER R"~(+)~" RE_LOWER R"~(*)~" RE_ENDINGS R"~(?)~"
         R"~(|\p{N}{1,3})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n/]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"kimi-k2",
        {R"~(\p{sc:Han}+)~"
         R"~(|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han}))~" RE_UPPER R"~()*(?:(?!\p{sc:Han}))~" RE_LOWER R"~()+)~" RE_ENDINGS R"~(?)~"
         R"~(|[^\r\n\p{L}\p{N}]?(?:(?!\p{sc:Han}))~" RE_UPPER R"~()+(?:(?!\p{sc:Han}))~" RE_LOWER R"~()*)~" RE_ENDINGS R"~(?)~"
         R"~(|\p{N}{1,3})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"superbpe",
        {R"~(\p{N}+)~",
         R"~((?<=\d)\d{3})~"
         R"~(|\d{1,3}(?=(?:\d{3})*+(?!\d)))~"}},
    {"bailingmoe",
        {R"~('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))~"
         R"~(|[^\r\n\p{L}\p{N}]?+\p{L}+)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]++[\r\n]*)~"
         R"~(|\p{wspace}*[\r\n])~"
         R"~(|)~" RE_GAP}},
    {"seed-coder",
        {RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?\p{L}+)~"
         R"~(|\p{N}{1})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}\r\n]+)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"afmoe",
        {RE_GROUP3,
         R"~([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)~",
         R"~([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)~"
         R"~(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)~"
         R"~(| ?[\p{P}\p{S}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"laguna",
        {R"~([^\n]+)~"
         R"~(|\n+)~",
         RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?\p{L}+)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"exaone-moe",
        {RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++)~"
         R"~(|\p{N})~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n/]?)~"
         R"~(|\p{wspace}*[\r\n])~"
         R"~(|)~" RE_GAP}},
    {"gemma4",
        {R"~([^\n]+)~"
         R"~(|\n+)~"}},
    {"sarvam-moe",
        {R"~([^\n]+)~"
         R"~(|\n+)~"}},
    {"minicpm5",
        {R"~(\p{N}{1,3})~",
         RE_ENDINGS
         R"~(|[^\r\n\p{L}\p{N}]?\p{L}+)~"
         R"~(|\p{N}+)~"
         R"~(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*)~"
         R"~(|)~" RE_LINE R"~(|)~" RE_GAP}},
    {"whitespace",
        {R"~(\P{wspace}+)~"}},
    {"default",
        {R"~([\p{P}\$\+<=>\^~\|]+)~",
         RE_GPT2,
         R"~(\p{N}+)~",
         R"~([0-9][0-9][0-9])~"}},
};

constexpr PreTokenizerRow kRows[] = {
    {.name = "a.x-4.0", .group = "gpt2", .clean_spaces = true},
    {.name = "afmoe", .group = "afmoe"},
    {.name = "bailingmoe", .group = "bailingmoe"},
    {.name = "bailingmoe2", .group = "bailingmoe"},
    {.name = "bloom", .group = "bloom", .clean_spaces = true},
    {.name = "chameleon", .group = "chameleon", .add_bos = true},
    {.name = "chatglm-bpe", .group = "llama3", .clean_spaces = true, .default_bos = false},
    {.name = "codeshell", .group = "starcoder", .clean_spaces = true},
    {.name = "cohere2_moe", .group = "starcoder"},
    {.name = "cohere2moe", .group = "tiny_aya"},
    {.name = "command-r", .group = "starcoder"},
    {.name = "dbrx", .group = "llama3", .clean_spaces = true},
    {.name = "deepseek-coder", .group = "deepseek-coder"},
    {.name = "deepseek-llm", .group = "deepseek-llm"},
    {.name = "deepseek-r1-qwen", .group = "qwen2"},
    {.name = "deepseek-v3", .group = "deepseek-v3"},
    {.name = "default", .group = "default", .clean_spaces = true},
    {.name = "exaone", .group = "starcoder", .clean_spaces = true},
    {.name = "exaone-moe", .group = "exaone-moe", .clean_spaces = true},
    {.name = "exaone4", .group = "gpt2", .clean_spaces = true},
    {.name = "f2llmv2", .group = "qwen2"},
    {.name = "falcon", .group = "falcon", .clean_spaces = true},
    {.name = "falcon-h1", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "gemma4", .group = "gemma4", .clean_spaces = true, .force_bos = true, .form = BpeForm::marks_lines},
    {.name = "gigachat", .group = "gpt2", .clean_spaces = true},
    {.name = "glm4", .group = "llama3", .clean_spaces = true, .default_bos = false},
    {.name = "gpt-2", .group = "gpt2", .clean_spaces = true},
    {.name = "gpt-4o", .group = "gpt-4o"},
    {.name = "gpt3-finnish", .group = "bloom", .clean_spaces = true},
    {.name = "granite-docling", .group = "gpt2"},
    {.name = "granite-embed-multi-311m", .group = "gemma4", .clean_spaces = true, .force_bos = true,
     .form = BpeForm::marks},
    {.name = "granite-embed-multi-97m", .group = "granite-embed-multi-97m", .ignore_merges = true},
    {.name = "grok-2", .group = "qwen2"},
    {.name = "hunyuan", .group = "qwen2"},
    {.name = "hunyuan-dense", .group = "deepseek-v3"},
    {.name = "jais", .group = "gpt2", .clean_spaces = true},
    {.name = "jais-2", .group = "jais-2", .clean_spaces = true},
    {.name = "jina-de", .group = "gpt2", .clean_spaces = true},
    {.name = "jina-es", .group = "gpt2", .clean_spaces = true},
    {.name = "jina-v1-en", .group = "gpt2", .clean_spaces = true, .add_sep = true},
    {.name = "jina-v2-code", .group = "gpt2", .clean_spaces = true, .add_sep = true},
    {.name = "jina-v2-de", .group = "gpt2", .clean_spaces = true},
    {.name = "jina-v2-es", .group = "gpt2", .clean_spaces = true},
    {.name = "jina-v5-nano", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "joyai-llm", .group = "deepseek-v3"},
    {.name = "kanana2", .group = "gpt-4o"},
    {.name = "kimi-k2", .group = "kimi-k2"},
    {.name = "kormo", .group = "qwen2"},
    {.name = "laguna", .group = "laguna"},
    {.name = "lfm2", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "llada-moe", .group = "bailingmoe"},
    {.name = "llama-bpe", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "llama4", .group = "gpt-4o"},
    {.name = "megrez", .group = "qwen2", .clean_spaces = true},
    {.name = "mellum", .group = "gpt2", .clean_spaces = true},
    {.name = "mellum2", .group = "starcoder", .clean_spaces = true},
    {.name = "midm-2.0", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "minerva-7b", .group = "starcoder", .clean_spaces = true},
    {.name = "minicpm5", .group = "minicpm5", .clean_spaces = true, .ignore_merges = true},
    {.name = "minimax-m2", .group = "gpt-4o"},
    {.name = "modern-bert", .group = "gpt2", .clean_spaces = true},
    {.name = "mpt", .group = "gpt2", .clean_spaces = true},
    {.name = "olmo", .group = "gpt2", .clean_spaces = true},
    {.name = "openpangu", .group = "qwen2"},
    {.name = "phi-2", .group = "gpt2", .clean_spaces = true},
    {.name = "pixtral", .group = "llama3", .clean_spaces = true, .ignore_merges = true, .add_bos = true},
    {.name = "poro-chat", .group = "bloom"},
    {.name = "qwen2", .group = "qwen2", .nfc = true},
    {.name = "qwen35", .group = "qwen35", .nfc = true},
    {.name = "refact", .group = "starcoder", .clean_spaces = true},
    {.name = "roberta-bpe", .group = "gpt2", .clean_spaces = true, .add_sep = true},
    {.name = "sarvam-moe", .group = "sarvam-moe", .form = BpeForm::marks},
    {.name = "seed-coder", .group = "seed-coder"},
    {.name = "smaug-bpe", .group = "llama3", .clean_spaces = true},
    {.name = "smollm", .group = "starcoder"},
    {.name = "solar-open", .group = "qwen2"},
    {.name = "stablelm2", .group = "qwen2", .clean_spaces = true},
    {.name = "starcoder", .group = "starcoder", .clean_spaces = true},
    {.name = "superbpe", .group = "superbpe"},
    {.name = "talkie", .group = "gpt-4o"},
    {.name = "tekken", .group = "tekken", .ignore_merges = true, .add_bos = true},
    {.name = "tiny_aya", .group = "tiny_aya"},
    {.name = "trillion", .group = "gpt2"},
    {.name = "viking", .group = "viking"},
    {.name = "whitespace", .group = "whitespace", .clean_spaces = true, .form = BpeForm::raw},
    {.name = "youtu", .group = "youtu", .ignore_merges = true},
};

#undef RE_GPT2
#undef RE_GROUP3
#undef RE_ENDINGS
#undef RE_UPPER
#undef RE_LOWER
#undef RE_LINE
#undef RE_GAP
// clang-format on

}  // namespace

std::span<const PreTokenizerRow> pre_tokenizer_rows() {
  return kRows;
}
std::span<const PreTokenizerGroup> pre_tokenizer_groups() {
  return kGroups;
}

const PreTokenizerRow* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizerRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace llama
