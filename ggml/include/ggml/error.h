#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <variant>

namespace ggml {

/// What kind of fault an Error reports. Ours alone: one table in tools/server maps it to HTTP.
enum class ErrorCode : std::uint8_t {
  invalid_argument,  // an option, a parameter or a request field is wrong
  invalid_file,      // a file is malformed or does not hold what it must
  unsupported,       // well formed, but nothing here can handle it
  not_found,         // a name, file, tensor or id does not exist
  exceeds_limit,     // larger than a configured or built-in limit (context size, body size, recursion depth)
  out_of_memory,     // a device or host allocation failed
  io,                // the operating system refused to open, read or write
  device,            // a device call failed
  cancelled,         // the caller asked to stop
  unavailable,       // not now: loading, shutting down, no free slot
  internal,          // our own fault, caught before it did harm
};

/// A fault in something the user gave us, thrown at the layer that knows the cause.
///
/// `what()` says what is wrong, where, and with which values; `hint()` says what to do about it and may be empty.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, std::string hint = {})
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::string hint_;
};

/// A fault of the hardware or of its memory: names the device and, for memory, the bytes wanted and free.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A value, or the Error that explains why there is none (std::expected is missing in GCC 12).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}      // NOLINT(google-explicit-constructor): reads as `return value;`
  Result(Error error) : v_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return v_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] const T& value() const { return std::get<0>(v_); }
  [[nodiscard]] T& value() { return std::get<0>(v_); }
  [[nodiscard]] const Error& error() const { return std::get<1>(v_); }
  /// The value; throws the Error when there is none.
  T take() {
    if (!ok()) throw error();
    return std::move(std::get<0>(v_));
  }

 private:
  std::variant<T, Error> v_;
};

/// Prints `file:line: condition: what` to stderr and aborts. Only for faults that are ours, never for input.
[[noreturn]] void assertion_failed(const char* file, int line, const char* condition, const char* what) noexcept;

}  // namespace ggml

#define TANDEM_ASSERT(cond, what)                                \
  do {                                                           \
    if (!(cond)) [[unlikely]]                                    \
      ::ggml::assertion_failed(__FILE__, __LINE__, #cond, what); \
  } while (false)

#ifdef NDEBUG
#define TANDEM_DASSERT(cond, what) ((void)0)
#else
#define TANDEM_DASSERT(cond, what) TANDEM_ASSERT(cond, what)
#endif
