// Runs a fuzz target without libFuzzer: every file of the corpus folder as it is, then cut short and with seeded byte
// changes. A crash or a sanitizer report fails the test; the seed is the file's position, so a failure repeats.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerFile = 5000;

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::string mutate(std::string bytes, cleave::Rng& rng) {
  const uint64_t changes = 1 + rng.below(4);
  for (uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = rng.below(bytes.size());
    switch (rng.below(5)) {
      case 0: bytes[at] = static_cast<char>(rng.below(256)); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8))); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(at, 1 + rng.below(8)); break;
      default: bytes.insert(at, bytes.substr(rng.below(bytes.size()), rng.below(32))); break;
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "the corpus is empty\n");
    return 1;
  }
  uint64_t inputs = 0;
  for (size_t f = 0; f < files.size(); ++f) {
    std::ifstream in(files[f], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    cleave::Rng rng(f);
    run(bytes);
    for (int i = 0; i < kMutationsPerFile; ++i) run(mutate(bytes, rng));
    inputs += 1 + kMutationsPerFile;
  }
  std::printf("%llu inputs from %zu files\n", static_cast<unsigned long long>(inputs), files.size());
  return 0;
}
