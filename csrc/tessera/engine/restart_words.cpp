// SPDX-License-Identifier: MIT
#include "tessera/engine/restart_words.hpp"

#include <cstdint>

#include "tessera/base/error.hpp"

namespace tessera {

namespace {

constexpr std::int64_t kLongest = 1 << 20;  // bytes; a file that says more holds something else
constexpr std::int64_t kUnreadable = -1;

/// Length and text as they stand in the file; the length is kUnreadable if that fails.
std::int64_t read_text(std::FILE* file, std::string& text)
{
  std::int64_t length = 0;
  if (std::fread(&length, sizeof(length), 1, file) != 1 || length < 0 || length > kLongest) return kUnreadable;
  text.resize(length);
  return std::fread(text.data(), 1, text.size(), file) == text.size() ? length : kUnreadable;
}

}  // namespace

// Length in bytes, then the words, each with a line break after it.
void write_words(std::FILE* file, const std::vector<std::string>& words)
{
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  const auto length = static_cast<std::int64_t>(text.size());
  const bool is_written = std::fwrite(&length, sizeof(length), 1, file) == 1 &&
                          std::fwrite(text.data(), 1, text.size(), file) == text.size();
  TESSERA_REQUIRE(is_written, "write_restart: expected room for {} bytes, could not write them; is the disk full?",
                  text.size());
}

std::vector<std::string> read_words(std::FILE* file, Communicator& communicator)
{
  std::string text;
  std::int64_t length = communicator.rank() == 0 ? read_text(file, text) : 0;
  communicator.all_reduce(std::span(&length, 1), Reduction::sum);
  if (length < 0) {
    fail(Reach::collective,
         "read_restart: expected the words of pair_style and pair_coeff, found something else; the file is damaged or "
         "was written by another version of tessera: write it again, or start from write_data");
  }
  std::vector<std::int64_t> letters(length, 0);
  for (std::size_t k = 0; k < text.size(); ++k) letters[k] = static_cast<unsigned char>(text[k]);
  communicator.all_reduce(letters, Reduction::sum);
  std::vector<std::string> words(1);
  for (const std::int64_t letter : letters) {
    if (letter == '\n') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(letter);
    }
  }
  words.pop_back();  // after the last line break
  return words;
}

}  // namespace tessera
