#include "common/chat/builtin_templates.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "common/chat/chat_templates.h"

namespace common::chat {

namespace {
// Pieces that many formats share. A message is `m`, its text `m.content`.
#define EACH "{% for m in messages %}"
#define END "{% endfor %}"
#define IF_PROMPT "{% if add_generation_prompt %}"
#define FI "{% endif %}"
#define SYSTEM "{% if m.role == 'system' %}"
#define USER "{% elif m.role == 'user' %}"
#define ASSISTANT "{% elif m.role == 'assistant' %}"
#define OTHER "{% else %}"
#define TEXT "{{ m.content }}"
#define TRIMMED "{{ m.content | trim }}"
#define NL "{{ '\\n' }}"
#define NL2 "{{ '\\n\\n' }}"

// <|role|> on a line of its own, text, an end.
#define ROLE_LINES(text, end) EACH "<|{{ m.role }}|>" NL text end NL END IF_PROMPT "<|assistant|>" NL FI

#define BAILING(end)                                                                               \
  EACH "<role>{{ 'HUMAN' if m.role == 'user' else m.role | upper }}</role>" TEXT end END IF_PROMPT \
       "<role>ASSISTANT</role>"

#define EXAONE(tool)                                                                                               \
  EACH SYSTEM "[|system|]" TRIMMED "[|endofturn|]" NL USER "[|user|]" TRIMMED NL ASSISTANT "[|assistant|]" TRIMMED \
              "[|endofturn|]" NL tool FI END IF_PROMPT "[|assistant|]" FI

#define GRANITE                                                                               \
  EACH "<|start_of_role|>{{ m.role }}<|end_of_role|>" TEXT "<|end_of_text|>" NL END IF_PROMPT \
       "<|start_of_role|>assistant<|end_of_role|>" FI

// Turns that are opened once and closed by the assistant's text. A message that is neither system nor user closes too.
#define TURNS(open, reopen, system, user, assistant)                                \
  open "{% set ns = namespace(inside=true) %}" EACH "{% if not ns.inside %}" reopen \
       "{% set ns.inside = true %}" FI SYSTEM system USER user OTHER assistant "{% set ns.inside = false %}" FI END

#define LLAMA2_SYSTEM(text) "<<SYS>>" NL text NL "<</SYS>>" NL2

#define HUNYUAN_FIRST_SYSTEM "{% if loop.first and m.role == 'system' %}" TEXT "<｜hy_place▁holder▁no▁3｜>"

constexpr BuiltinTemplate kTemplates[] = {
    {"mistral-v7-tekken",
     EACH SYSTEM "[SYSTEM_PROMPT]" TEXT "[/SYSTEM_PROMPT]" USER "[INST]" TEXT "[/INST]" OTHER TEXT "</s>" FI END,
     {"[SYSTEM_PROMPT]"},
     "[SYSTEM_PROMPT] "},
    {"mistral-v7",
     EACH SYSTEM "[SYSTEM_PROMPT] " TEXT "[/SYSTEM_PROMPT]" USER "[INST] " TEXT "[/INST]" OTHER " " TEXT "</s>" FI END,
     {"[SYSTEM_PROMPT] "}},
    {"mistral-v1",
     TURNS(" [INST] ", " [INST] ", TEXT NL2, TEXT " [/INST]", " " TEXT "</s>"),
     {"[INST]", "' [INST] ' + system_message"}},
    {"mistral-v3-tekken",
     TURNS("[INST]", "[INST]", TEXT NL2, TEXT "[/INST]", TEXT "</s>"),
     {"[INST]", "[AVAILABLE_TOOLS]", "\"[INST]\""}},
    {"mistral-v3",
     TURNS("[INST] ", "[INST] ", TEXT NL2, TEXT "[/INST]", " " TRIMMED "</s>"),
     {"[INST]", "[AVAILABLE_TOOLS]"}},
    {"llama2-sys-strip",
     TURNS("[INST] ", "[INST] ", LLAMA2_SYSTEM(TRIMMED), TRIMMED " [/INST]", TRIMMED "</s>"),
     {"[INST]", "<<SYS>>", "content.strip()"},
     "bos_token + '[INST]"},
    {"llama2-sys-bos",
     TURNS("[INST] ", "<s>[INST] ", LLAMA2_SYSTEM(TEXT), TEXT " [/INST]", TEXT "</s>"),
     {"[INST]", "<<SYS>>", "bos_token + '[INST]"}},
    {"llama2-sys",
     TURNS("[INST] ", "[INST] ", LLAMA2_SYSTEM(TEXT), TEXT " [/INST]", TEXT "</s>"),
     {"[INST]", "<<SYS>>"}},
    {"llama2", TURNS("[INST] ", "[INST] ", TEXT NL, TEXT " [/INST]", TEXT "</s>"), {"[INST]"}},
    {"phi4",
     EACH "<|im_start|>{{ m.role }}<|im_sep|>" TEXT "<|im_end|>" END IF_PROMPT "<|im_start|>assistant<|im_sep|>" FI,
     {"<|im_start|>", "<|im_sep|>"}},
    {"smolvlm",
     "<|im_start|>" EACH SYSTEM TEXT NL2 USER "User: " TEXT "<end_of_utterance>" NL OTHER "Assistant: " TEXT
     "<end_of_utterance>" NL FI END IF_PROMPT "Assistant:" FI,
     {"<end_of_utterance>"}},
    {"chatml",
     EACH "<|im_start|>{{ m.role }}" NL TEXT "<|im_end|>" NL END IF_PROMPT "<|im_start|>assistant" NL FI,
     {"<|im_start|>"}},
    {"falcon3", ROLE_LINES(TEXT, ""), {"<|assistant|>", "<|user|>", "'\\n' + eos_token"}, "<|end|>"},
    {"exaone-moe", ROLE_LINES(TRIMMED, "<|endofturn|>"), {"<|endofturn|>", "<|user|>"}},
    {"exaone4", EXAONE("{% elif m.role == 'tool' %}[|tool|]" TRIMMED "[|endofturn|]" NL), {"[|system|]", "[|tool|]"}},
    {"exaone3", EXAONE(""), {"[|system|]", "[|assistant|]", "[|endofturn|]"}},
    {"glmedge",
     EACH "<|{{ m.role }}|>" NL TEXT END IF_PROMPT "<|assistant|>" FI,
     {"<|assistant|>", "<|user|>", "{{ item['content'] }}"}},
    {"chatglm4", "[gMASK]<sop>" EACH "<|{{ m.role }}|>" NL TEXT END IF_PROMPT "<|assistant|>" NL FI, {"[gMASK]<sop>"}},
    {"chatglm3", "[gMASK]sop" EACH "<|{{ m.role }}|>" NL " " TEXT END IF_PROMPT "<|assistant|>" FI, {"[gMASK]sop"}},
    {"phi3", ROLE_LINES(TEXT, "<|end|>"), {"<|assistant|>", "<|end|>"}},
    {"zephyr", ROLE_LINES(TEXT, "<|endoftext|>"), {"<|user|>", "<|assistant|>", "eos_token"}},
    {"gpt-oss",
     EACH "<|start|>{{ m.role }}<|message|>" TEXT
          "{{ '<|return|>' if m.role == 'assistant' else '<|end|>' }}" END IF_PROMPT "<|start|>assistant" FI,
     {"<|start|>", "<|channel|>"}},
    {"solar-open",
     EACH "<|begin|>{{ m.role }}<|content|>" TEXT "<|end|>" END IF_PROMPT "<|begin|>assistant" FI,
     {"<|begin|>", "<|content|>"}},
    {"kimi-k2",
     EACH "{% if m.role == 'user' %}<|im_user|>user{% elif m.role == 'assistant' %}<|im_assistant|>assistant{% else %}"
          "<|im_system|>{{ m.role }}{% endif %}<|im_middle|>" TEXT "<|im_end|>" END IF_PROMPT
          "<|im_assistant|>assistant<|im_middle|>" FI,
     {"<|im_middle|>", "<|im_user|>"}},
    {"gemma",
     "{% set ns = namespace(system='') %}" EACH SYSTEM "{% set ns.system = ns.system ~ (m.content | trim) %}" OTHER
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}" NL
     "{% if ns.system and m.role != 'assistant' %}{{ ns.system }}" NL2 "{% set ns.system = '' %}" FI TRIMMED
     "<end_of_turn>" NL FI END IF_PROMPT "<start_of_turn>model" NL FI,
     {"<start_of_turn>"}},
    {"orion",
     "{% set ns = namespace(system='') %}" EACH SYSTEM "{% set ns.system = ns.system ~ m.content %}" USER
     "Human: {% if ns.system %}{{ ns.system }}" NL2 "{% set ns.system = '' %}" FI TEXT NL2 "Assistant: </s>" OTHER TEXT
     "</s>" FI END,
     {"'\\n\\nAssistant: ' + eos_token"}},
    {"openchat",
     EACH "{% if m.role != 'system' %}GPT4 Correct {{ m.role | capitalize }}: " FI TEXT "<|end_of_turn|>" END IF_PROMPT
          "GPT4 Correct Assistant:" FI,
     {"GPT4 Correct "}},
    {"vicuna-orca",
     EACH SYSTEM "SYSTEM: " TEXT NL USER "USER: " TEXT NL ASSISTANT "ASSISTANT: " TEXT "</s>" NL FI END IF_PROMPT
                 "ASSISTANT:" FI,
     {"USER: ", "ASSISTANT: ", "SYSTEM: "}},
    {"vicuna",
     EACH SYSTEM TEXT NL2 USER "USER: " TEXT NL ASSISTANT "ASSISTANT: " TEXT "</s>" NL FI END IF_PROMPT "ASSISTANT:" FI,
     {"USER: ", "ASSISTANT: "}},
    {"deepseek",
     EACH SYSTEM TEXT USER "### Instruction:" NL TEXT NL ASSISTANT "### Response:" NL TEXT NL
                           "<|EOT|>" NL FI END IF_PROMPT "### Response:" NL FI,
     {"### Instruction:", "<|EOT|>"}},
    {"command-r",
     EACH "{% set token = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}.get(m.role) %}"
          "{% if token %}<|START_OF_TURN_TOKEN|><|{{ token }}_TOKEN|>" TRIMMED "<|END_OF_TURN_TOKEN|>" FI END IF_PROMPT
          "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" FI,
     {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}},
    {"llama3",
     EACH "<|start_header_id|>{{ m.role }}<|end_header_id|>" NL2 TRIMMED "<|eot_id|>" END IF_PROMPT
          "<|start_header_id|>assistant<|end_header_id|>" NL2 FI,
     {"<|start_header_id|>", "<|end_header_id|>"}},
    {"llama4",
     EACH "<|header_start|>{{ m.role }}<|header_end|>" NL2 TRIMMED "<|eot|>" END IF_PROMPT
          "<|header_start|>assistant<|header_end|>" NL2 FI,
     {"<|header_start|>", "<|header_end|>"}},
    {"minicpm", EACH "{% if m.role == 'user' %}<用户>" TRIMMED "<AI>" OTHER TRIMMED FI END, {"<用户>"}},
    {"deepseek2",
     EACH SYSTEM TEXT NL2 USER "User: " TEXT NL2 ASSISTANT "Assistant: " TEXT "<｜end▁of▁sentence｜>" FI END IF_PROMPT
                               "Assistant:" FI,
     {"'Assistant: ' + message['content'] + eos_token"}},
    {"deepseek3",
     EACH SYSTEM TEXT NL2 USER "<｜User｜>" TEXT ASSISTANT "<｜Assistant｜>" TEXT
                               "<｜end▁of▁sentence｜>" FI END IF_PROMPT "<｜Assistant｜>" FI,
     {"<｜Assistant｜>", "<｜User｜>"}},
    {"granite-4.1", GRANITE, {"<|start_of_role|>", "<tool_call>", "<documents>"}},
    {"granite-4.0", GRANITE, {"<|start_of_role|>", "<tool_call>"}},
    {"granite", GRANITE, {"<|start_of_role|>"}},
    {"gigachat",
     "<s>" EACH "{% if m.role == 'system' %}{% if loop.first %}" TEXT "<|message_sep|>" FI USER "user<|role_sep|>" TEXT
     "<|message_sep|>available functions<|role_sep|>[]<|message_sep|>" ASSISTANT "assistant<|role_sep|>" TEXT
     "<|message_sep|>" FI END IF_PROMPT "assistant<|role_sep|>" FI,
     {"message['role'] + additional_special_tokens[0] + message['content'] + additional_special_tokens[1]"}},
    {"megrez",
     EACH "<|role_start|>{{ m.role }}<|role_end|>" TEXT "<|turn_end|>" END IF_PROMPT
          "<|role_start|>assistant<|role_end|>" FI,
     {"<|role_start|>"}},
    {"yandex",
     EACH "{% if m.role == 'user' %} Пользователь: " TEXT NL2 ASSISTANT " Ассистент: " TEXT NL2 FI END IF_PROMPT
          " Ассистент:[SEP]" FI,
     {" Ассистент:"}},
    {"bailing-think", BAILING("") "<think>" FI, {"<role>ASSISTANT</role>", "'HUMAN'", "<think>"}, "<|role_end|>"},
    {"bailing2",
     "{% if not messages or messages[0].role != 'system' %}<role>SYSTEM</role>detailed thinking off<|role_end|>{% "
     "endif %}" BAILING("<|role_end|>") FI,
     {"<role>ASSISTANT</role>", "<|role_end|>"}},
    {"bailing", BAILING("") FI, {"<role>ASSISTANT</role>", "'HUMAN'"}},
    {"hunyuan-dense",
     EACH HUNYUAN_FIRST_SYSTEM USER "<｜hy_User｜>" TEXT "<｜hy_Assistant｜>" ASSISTANT "<｜hy_Assistant｜>" TEXT
                                    "<｜hy_place▁holder▁no▁2｜>" FI END,
     {"<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁2｜>"}},
    {"hunyuan-vl",
     "<｜hy_begin▁of▁sentence｜>" EACH HUNYUAN_FIRST_SYSTEM USER TEXT "<｜hy_User｜>" ASSISTANT TEXT
     "<｜hy_Assistant｜>" FI END,
     {"<｜hy_place▁holder▁no▁3｜>", "<｜hy_User｜>"}},
    {"hunyuan-moe",
     EACH SYSTEM "<|startoftext|>" TEXT "<|extra_4|>" ASSISTANT TEXT "<|eos|>" OTHER "<|startoftext|>" TEXT
                 "<|extra_0|>" FI END,
     {"<|startoftext|>", "<|extra_4|>"}},
    {"grok-2",
     EACH SYSTEM "System: " TRIMMED "<|separator|>" NL2 USER "Human: " TRIMMED "<|separator|>" NL2 ASSISTANT
                 "Assistant: " TEXT "<|separator|>" NL2 FI END IF_PROMPT "Assistant:" FI,
     {"<|separator|>"}},
    {"pangu-embedded",
     "{% set names = {'system': '系统', 'user': '用户', 'assistant': '助手', 'tool': '工具'} %}"
     "{% if not messages or messages[0].role != 'system' %}[unused9]系统：[unused10]{% endif %}" EACH
     "[unused9]{{ names.get(m.role, m.role) }}：" TEXT "[unused10]" END IF_PROMPT "[unused9]助手：" FI,
     {"[unused9]", "[unused10]"}},
    {"seed_oss",
     EACH "<seed:bos>{{ m.role }}" NL
          "{{ m.content | trim if m.role == 'assistant' else m.content }}<seed:eos>" END IF_PROMPT
          "<seed:bos>assistant" NL FI,
     {"<seed:bos>"}},
    {"rwkv-world",
     EACH SYSTEM "System: " TRIMMED NL2 USER "User: " TRIMMED NL2
                 "{% if loop.last and add_generation_prompt %}Assistant:{% endif %}" ASSISTANT
                 "Assistant: " TRIMMED NL2 FI END,
     {"rwkv-world"}},
    {"monarch",
     EACH "{% if not loop.first %}<s>" FI "{{ m.role }}" NL TEXT "</s>" NL END IF_PROMPT "<s>assistant" NL FI,
     {"bos_token + message['role']"}},
    {"deepseek-ocr", EACH TEXT END},
};
}  // namespace

std::span<const BuiltinTemplate> builtin_templates() {
  return kTemplates;
}

const BuiltinTemplate* find_builtin_template(std::string_view name) {
  const auto it =
      std::find_if(std::begin(kTemplates), std::end(kTemplates), [&](const auto& t) { return t.name == name; });
  return it == std::end(kTemplates) ? nullptr : &*it;
}

const BuiltinTemplate* match_builtin_template(std::string_view source) {
  const auto matches = [&](const BuiltinTemplate& t) {
    if (t.markers[0].empty() || (!t.absent.empty() && source.find(t.absent) != std::string_view::npos)) return false;
    return std::all_of(std::begin(t.markers), std::end(t.markers),
                       [&](std::string_view m) { return source.find(m) != std::string_view::npos; });
  };
  const auto it = std::find_if(std::begin(kTemplates), std::end(kTemplates), matches);
  return it == std::end(kTemplates) ? nullptr : &*it;
}

std::vector<std::string_view> builtin_template_names() {
  std::vector<std::string_view> names;
  for (const BuiltinTemplate& t : kTemplates) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace common::chat
