// SPDX-License-Identifier: MIT
#include "tessera/model/json.hpp"

#include <charconv>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr int kDeepest = 64;  // nesting beyond this is no passport, and would exhaust the stack

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document()
  {
    Json result = value(0);
    skip_space();
    if (at_ < text_.size()) expected("the end");
    return result;
  }

 private:
  [[noreturn]] void expected(const char* what) const
  {
    const auto found = at_ < text_.size() ? format("'{}'", text_[at_]) : std::string("the end");
    fail(Reach::rank, "JSON: expected {} at position {}, found {}", what, at_, found);
  }

  void skip_space()
  {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(std::string_view word)
  {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void require(std::string_view word, const char* what)
  {
    if (!take(word)) expected(what);
  }

  Json value(int depth)
  {
    if (depth > kDeepest) fail(Reach::rank, "JSON: expected at most {} nested values", kDeepest);
    skip_space();
    if (at_ >= text_.size()) expected("a value");
    if (text_[at_] == '{') return {object(depth)};
    if (text_[at_] == '[') return {array(depth)};
    if (text_[at_] == '"') return {string()};
    if (take("true")) return {true};
    if (take("false")) return {false};
    if (take("null")) return {nullptr};
    return {number()};
  }

  Json::Object object(int depth)
  {
    Json::Object result;
    require("{", "'{'");
    skip_space();
    if (take("}")) return result;
    do {
      skip_space();
      auto key = string();
      skip_space();
      require(":", "':'");
      if (!result.emplace(std::move(key), value(depth + 1)).second) expected("a key that was not there before");
      skip_space();
    } while (take(","));
    require("}", "',' or '}'");
    return result;
  }

  Json::Array array(int depth)
  {
    Json::Array result;
    require("[", "'['");
    skip_space();
    if (take("]")) return result;
    do {
      result.push_back(value(depth + 1));
      skip_space();
    } while (take(","));
    require("]", "',' or ']'");
    return result;
  }

  double number()
  {
    const char c = text_[at_];
    double result = 0;
    const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), result);
    // from_chars also reads "inf" and "nan", which JSON has not
    if (status != std::errc() || (c != '-' && (c < '0' || c > '9'))) expected("a value");
    at_ = end - text_.data();
    return result;
  }

  std::string string()
  {
    require("\"", "'\"'");
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) expected("no control character in a string");
      if (text_[at_] != '\\') {
        result += text_[at_++];
        continue;
      }
      ++at_;
      escape(result);
    }
    require("\"", "'\"'");
    return result;
  }

  void escape(std::string& result)
  {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (take("u")) {
      append_utf8(result, code_point());
      return;
    }
    const auto letter = at_ < text_.size() ? kLetters.find(text_[at_]) : std::string_view::npos;
    if (letter == std::string_view::npos) expected("an escape (one of \"\\/bfnrtu)");
    result += kMeanings[letter];
    ++at_;
  }

  unsigned hexadecimal()
  {
    unsigned result = 0;
    const auto digits = text_.substr(at_, 4);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), result, 16);
    if (digits.size() < 4 || status != std::errc() || end != digits.data() + 4) expected("four hexadecimal digits");
    at_ += 4;
    return result;
  }

  /// Python writes characters beyond the basic plane as two surrogates.
  unsigned code_point()
  {
    const unsigned high = hexadecimal();
    if (high < 0xD800 || high > 0xDFFF) return high;
    require("\\u", "the second half of a surrogate pair");
    const unsigned low = hexadecimal();
    if (high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) expected("a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  static void append_utf8(std::string& out, unsigned code)
  {
    if (code < 0x80) {
      out += static_cast<char>(code);
      return;
    }
    const int extra = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(kLead[extra] | (code >> (6 * extra)));
    for (int k = extra - 1; k >= 0; --k) out += static_cast<char>(0x80 | ((code >> (6 * k)) & 0x3F));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const char* Json::kind() const
{
  constexpr const char* kNames[] = {"null", "boolean", "number", "string", "array", "object"};
  return kNames[value.index()];
}

Json parse_json(std::string_view text) { return Parser(text).document(); }

}  // namespace tessera
