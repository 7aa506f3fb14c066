#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unordered_set>

#include "ggml/error.h"
#include "ggml/gguf.h"
#include "ggml/log.h"
#include "ggml/quoted.h"
#include "os.h"
#include "value_types.h"

namespace ggml::gguf {
namespace {

constexpr std::size_t kMaxTensorName = 63;
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
  return bytes + (alignment - bytes % alignment) % alignment;
}

struct Entry {
  std::string name;
  DType type;
  Shape shape;
  std::uint64_t bytes;
};

/// Collects the bytes of a header.
class HeaderBuilder {
 public:
  template <class T>
  void number(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void string(std::string_view text) {
    number(std::uint64_t{text.size()});
    append(std::as_bytes(std::span(text)));
  }
  void value(const Value& value) {
    number(static_cast<std::uint32_t>(value.type));
    std::visit([&](const auto& data) { store(value.type, data); }, value.data);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  void store(ValueType type, std::uint64_t data) { low_bytes(data, value_bytes(type)); }
  void store(ValueType type, std::int64_t data) { low_bytes(static_cast<std::uint64_t>(data), value_bytes(type)); }
  void store(ValueType type, double data) {
    if (type == ValueType::f32) {
      number(static_cast<float>(data));
    } else {
      number(data);
    }
  }
  void store(ValueType, bool data) { number(static_cast<std::uint8_t>(data ? 1 : 0)); }
  void store(ValueType, const std::string& data) { string(data); }
  void store(ValueType, const Array& data) {
    number(static_cast<std::uint32_t>(data.element));
    number(std::uint64_t{data.size()});
    for (const std::string& text : data.strings) string(text);
    append(data.numbers);
  }
  /// Little endian: the low bytes come first, and two's complement of any width is a prefix of a wider one.
  void low_bytes(std::uint64_t data, std::size_t bytes) { append(std::as_bytes(std::span(&data, 1)).first(bytes)); }

  std::vector<std::byte> bytes_;
};

std::uint32_t alignment_of(const Metadata& metadata) {
  const Value* value = metadata.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  const auto* number = std::get_if<std::uint64_t>(&value->data);
  if (value->type != ValueType::u32 || number == nullptr || !std::has_single_bit(*number)) {
    throw Error(ErrorCode::invalid_argument, "general.alignment must be a u32 and a power of two");
  }
  return static_cast<std::uint32_t>(*number);
}

std::vector<std::byte> build_header(const Metadata& metadata, std::span<const Entry> tensors) {
  const std::uint32_t alignment = alignment_of(metadata);
  HeaderBuilder out;
  out.number(std::uint32_t{0x46554747});  // "GGUF"
  out.number(kVersion);
  out.number(std::uint64_t{tensors.size()});
  out.number(std::uint64_t{metadata.entries().size()});
  for (const auto& [key, value] : metadata.entries()) {
    if (key.empty()) throw Error(ErrorCode::invalid_argument, "a metadata key is empty");
    out.string(key);
    out.value(value);
  }
  std::uint64_t offset = 0;
  for (const Entry& tensor : tensors) {
    const int n_dims = tensor.shape.dims();
    out.string(tensor.name);
    out.number(static_cast<std::uint32_t>(n_dims));
    for (int axis = 0; axis < n_dims; ++axis) out.number(static_cast<std::uint64_t>(tensor.shape[axis]));
    out.number(type_info(tensor.type).gguf_number);
    out.number(offset);
    offset += padded(tensor.bytes, alignment);
  }
  std::vector<std::byte> header = out.take();
  if (!tensors.empty()) header.resize(static_cast<std::size_t>(padded(header.size(), alignment)));
  return header;
}

void check_shape(const std::string& name, DType type, const Shape& shape) {
  const TypeInfo& info = type_info(type);
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;  // keeps every product of sizes far from wrapping
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape.ne) {
    if (extent < 1 || extent > kMaxElements / elements) {
      throw Error(ErrorCode::invalid_argument,
                  strf("tensor %s: an extent is below 1, or there are more than 2^56 elements", quoted(name).c_str()));
    }
    elements *= extent;
  }
  if (shape[0] % info.block_weights != 0 || shape[1] % info.rows_per_group != 0) {
    throw Error(ErrorCode::invalid_argument,
                strf("tensor %s: %s does not divide into the blocks of type %s", quoted(name).c_str(),
                     shape.text().c_str(), std::string(info.name).c_str()));
  }
}

}  // namespace

struct Writer::Impl {
  enum class State : std::uint8_t { collecting, writing, done, failed };

  explicit Impl(std::string final_path) : path(std::move(final_path)), part(path + ".part") {}

  const std::string path;
  const std::string part;
  State state = State::collecting;
  std::vector<Entry> tensors;
  std::unordered_set<std::string> names;
  std::uint32_t alignment = kDefaultAlignment;

  Descriptor file;
  std::uint64_t position = 0;  // bytes handed to the system or skipped
  std::vector<std::byte> buffer;
  std::size_t current = 0;    // index into tensors
  std::uint64_t filled = 0;   // bytes of the current tensor that were written
  bool ends_in_hole = false;  // the file must be extended to `position`

  [[noreturn]] void fail(const char* action) {
    const int reason = errno;
    abandon();
    throw Error(ErrorCode::io,
                strf("%s: byte %llu: cannot %s: %s", part.c_str(), ull(position), action, system_text(reason).c_str()));
  }

  void abandon() noexcept {
    if (state == State::writing) {
      file.close();
      ::unlink(part.c_str());
      state = State::failed;
    }
  }

  void expect(State wanted, const char* call) const {
    if (state == wanted) return;
    throw Error(ErrorCode::internal, path + ": " + call + " was called in the wrong order or after an error");
  }

  void put(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t n = ::pwrite(file.get(), data.data(), data.size(), static_cast<off_t>(position));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write");
      data = data.subspan(static_cast<std::size_t>(n));
      position += static_cast<std::uint64_t>(n);
      ends_in_hole = false;
    }
  }

  void flush() {
    put(buffer);
    buffer.clear();
  }

  /// Small pieces (norms, padding) are gathered, large ones go straight to the system.
  void append(std::span<const std::byte> data) {
    if (buffer.size() + data.size() > kBufferBytes) flush();
    if (data.size() >= kBufferBytes) {
      put(data);
    } else {
      buffer.insert(buffer.end(), data.begin(), data.end());
    }
  }

  void take_room(std::uint64_t bytes) {
    const std::uint64_t room = current < tensors.size() ? tensors[current].bytes - filled : 0;
    if (bytes <= room) {
      filled += bytes;
      return;
    }
    const std::string name = current < tensors.size() ? tensors[current].name : std::string("(none)");
    abandon();
    throw Error(ErrorCode::internal, strf("%s: %llu bytes do not fit into tensor %s, %llu are missing", path.c_str(),
                                          ull(bytes), quoted(name).c_str(), ull(room)));
  }

  /// Steps over complete tensors and pads them.
  void advance() {
    if (current == tensors.size() || filled < tensors[current].bytes) return;
    const std::uint64_t padding = padded(filled, alignment) - filled;
    if (ends_in_hole && buffer.empty()) {
      position += padding;
    } else {
      append(std::vector<std::byte>(static_cast<std::size_t>(padding)));
    }
    ++current;
    filled = 0;
  }
};

Writer::Writer(std::string path) : impl_(std::make_unique<Impl>(std::move(path))) {}

Writer::~Writer() {
  impl_->abandon();
}

void Writer::add_tensor(std::string name, DType type, const Shape& shape) {
  impl_->expect(Impl::State::collecting, "add_tensor()");
  if (name.empty() || name.size() > kMaxTensorName || name.find('\0') != std::string::npos) {
    throw Error(ErrorCode::invalid_argument, strf("tensor name %s has %zu bytes; 1 to %zu without NUL are allowed",
                                                  quoted(name).c_str(), name.size(), kMaxTensorName));
  }
  check_shape(name, type, shape);
  if (!impl_->names.insert(name).second) {
    throw Error(ErrorCode::invalid_argument, strf("tensor name %s was added already", quoted(name).c_str()));
  }
  impl_->tensors.push_back({std::move(name), type, shape, tensor_bytes(type, shape)});
}

std::uint64_t Writer::file_bytes() const {
  const std::uint32_t alignment = alignment_of(metadata);
  std::uint64_t bytes = build_header(metadata, impl_->tensors).size();
  for (const Entry& tensor : impl_->tensors) bytes += padded(tensor.bytes, alignment);
  return bytes;
}

void Writer::begin_data() {
  impl_->expect(Impl::State::collecting, "begin_data()");
  const std::vector<std::byte> header = build_header(metadata, impl_->tensors);
  impl_->alignment = alignment_of(metadata);
  struct stat target = {};
  if (::stat(impl_->path.c_str(), &target) == 0 && !S_ISREG(target.st_mode)) {
    // finish() renames onto it: a folder would fail after all the work, and a device such as /dev/null would be
    // replaced.
    throw Error(ErrorCode::io, impl_->path + ": is not a regular file", "give the name of a new file");
  }
  constexpr mode_t kAnyoneMayRead = 0666;  // less the user's umask
  impl_->file = Descriptor(::open(impl_->part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kAnyoneMayRead));
  if (impl_->file.get() < 0) {
    throw Error(ErrorCode::io, impl_->part + ": cannot create: " + system_text(errno));
  }
  impl_->state = Impl::State::writing;
  impl_->append(header);
}

void Writer::write(std::span<const std::byte> data) {
  impl_->expect(Impl::State::writing, "write()");
  impl_->take_room(data.size());
  impl_->append(data);
  impl_->advance();
}

void Writer::write_hole(std::uint64_t bytes) {
  impl_->expect(Impl::State::writing, "write_hole()");
  impl_->take_room(bytes);
  impl_->flush();
  impl_->position += bytes;
  impl_->ends_in_hole = true;
  impl_->advance();
}

void Writer::finish() {
  impl_->expect(Impl::State::writing, "finish()");
  if (impl_->current < impl_->tensors.size()) {
    const Entry& tensor = impl_->tensors[impl_->current];
    const std::uint64_t missing = tensor.bytes - impl_->filled;
    impl_->abandon();
    throw Error(ErrorCode::internal,
                strf("%s: tensor %s lacks %llu bytes", impl_->path.c_str(), quoted(tensor.name).c_str(), ull(missing)));
  }
  impl_->flush();
  if (impl_->ends_in_hole && ::ftruncate(impl_->file.get(), static_cast<off_t>(impl_->position)) != 0) {
    impl_->fail("extend the file");
  }
  if (!impl_->file.close()) impl_->fail("close");
  if (::rename(impl_->part.c_str(), impl_->path.c_str()) != 0) impl_->fail("rename");
  impl_->state = Impl::State::done;
}

}  // namespace ggml::gguf
