#include "model/family.h"

#include <array>

namespace llama {

#define FAMILY(id) extern const Family k_##id;
#include "model/families.def"
#undef FAMILY

namespace {

constexpr std::array kFamilies{
#define FAMILY(id) &k_##id,
#include "model/families.def"
#undef FAMILY
};

}  // namespace

const Family* find_family(std::string_view arch) noexcept {
  for (const Family* family : kFamilies)
    if (family->arch == arch) return family;
  return nullptr;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family* family : kFamilies) names.push_back(family->arch);
  return names;
}

}  // namespace llama
