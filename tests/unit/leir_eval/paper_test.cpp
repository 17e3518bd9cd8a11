// Every fragment that the Step-TP paper prints (tests/golden/leir): legal ones are read, printed, checked and, with
// small extents, run equal to what they come from; those named fail_ are refused with their reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/codes.hpp"
#include "support/leir_check.hpp"

namespace cleave::leir {
namespace {

// `# what`, then lines `# small 457=3 ..` (extents to run with), `# reason NAME`, `# demoted M D`, `# checks F` (its
// values are subscripts, checked when it runs); programs between
// `---`.
struct Fragment {
  std::string name, reason;
  std::map<std::string, std::string> small;
  std::vector<std::string> demoted, checks, programs;
};

std::vector<Fragment> fragments() {
  std::vector<Fragment> out;
  for (const auto& file : std::filesystem::directory_iterator(std::string(CLEAVE_SOURCE_DIR) + "/tests/golden/leir")) {
    Fragment f;
    f.name = file.path().stem();
    f.programs.emplace_back();
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string hash, key, word;
      words >> hash >> key;
      if (line == "---") {
        f.programs.emplace_back();
      } else if (hash != "#") {
        f.programs.back() += line + "\n";
      } else if (key == "reason") {
        words >> f.reason;
      } else {
        while (words >> word) {
          if (key == "demoted") f.demoted.push_back(word);
          if (key == "checks") f.checks.push_back(word);
          if (key == "small") f.small[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
        }
      }
    }
    out.push_back(std::move(f));
  }
  std::sort(out.begin(), out.end(), [](const Fragment& a, const Fragment& b) { return a.name < b.name; });
  return out;
}

// Whole numbers replaced, those of dtypes and fractions not.
std::string scaled(const std::string& text, const std::map<std::string, std::string>& by) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t n = i;
    while (n < text.size() && std::isdigit(static_cast<unsigned char>(text[n]))) ++n;
    const bool whole =
        n > i && (i == 0 || (!std::isalpha(static_cast<unsigned char>(text[i - 1])) && text[i - 1] != '.'));
    const auto it = whole ? by.find(text.substr(i, n - i)) : by.end();
    out += it != by.end() ? it->second : text.substr(i, std::max<size_t>(n - i, 1));
    i = std::max(n, i + 1);
  }
  return out;
}

TEST(Paper, LegalFragmentsRoundTripAndAreChecked) {
  size_t legal = 0;
  for (const Fragment& f : fragments()) {
    if (!f.reason.empty()) continue;
    for (size_t i = 0; i < f.programs.size(); ++i) {
      ++legal;
      const Parsed p = parse(SourceText{f.name, f.programs[i]});
      ASSERT_TRUE(p.ok()) << f.name << render(p.messages, nullptr);
      const std::string canonical = print(p.syntax);
      const Parsed again = parse(SourceText{f.name, canonical});
      ASSERT_TRUE(again.ok()) << canonical;
      EXPECT_EQ(structure(again.syntax), structure(p.syntax)) << f.name;
      EXPECT_EQ(print(again.syntax), canonical);
      const Checked c = check(p.syntax);
      ASSERT_TRUE(c.program) << f.name << " program " << i << "\n" << render(c.messages, nullptr);
      EXPECT_EQ(c.program->needs_checks(), i > 0 && !f.checks.empty()) << f.name;
      std::vector<std::string> demoted;
      for (const Variable& v : c.program->variables())
        if (v.demoted) demoted.push_back(p.syntax.text(v.name));
      if (i > 0) EXPECT_THAT(demoted, ::testing::UnorderedElementsAreArray(f.demoted)) << f.name;
    }
  }
  EXPECT_GT(legal, 70u);
}

TEST(Paper, IllegalFragmentsAreRefusedWithTheirReason) {
  size_t illegal = 0;
  for (const Fragment& f : fragments()) {
    if (f.reason.empty()) continue;
    ++illegal;
    EXPECT_EQ(f.name.substr(0, 5), "fail_");
    const Parsed p = parse(SourceText{f.name, f.programs.at(0)});
    Diagnostics messages = p.messages;
    if (p.ok()) {
      const Checked c = check(p.syntax);
      EXPECT_FALSE(c.program) << f.name;
      messages = c.messages;
    }
    std::vector<std::string> errors;
    for (const Diagnostic& d : messages)
      if (info(d.code).severity == Severity::error) errors.push_back(info(d.code).name);
    EXPECT_THAT(errors, ::testing::Contains(f.reason)) << f.name << render(messages, nullptr);
  }
  EXPECT_GE(illegal, 6u);
}

// In float64 and in storage precision, each within the error bounds of both.
TEST(Paper, RewrittenFragmentsComputeWhatTheyDidBefore) {
  size_t pairs = 0;
  for (const Fragment& f : fragments()) {
    if (!f.reason.empty()) continue;
    ASSERT_FALSE(f.small.empty()) << f.name;
    const Program original = testing::leir_program(scaled(f.programs[0], f.small));
    for (size_t i = 0; i < f.programs.size(); ++i) {
      const Program p = testing::leir_program(scaled(f.programs[i], f.small));
      for (uint64_t seed : {1, 2, 3}) {
        auto inputs = testing::leir_data(original, seed);
        for (auto& [name, a] : inputs)  // positive and moderate: logarithms, roots and quotients stay finite
          for (double& x : a.reals)
            x = round_real(a.type, std::isfinite(x) ? std::fabs(std::fmod(x, 3.0)) + 0.25 : 0.5);
        const auto want = interpret(original, inputs, {.precision = Precision::f64, .error_bounds = true});
        const auto exact = interpret(p, inputs, {.precision = Precision::f64, .error_bounds = true});
        const auto stored = interpret(p, inputs);
        ASSERT_TRUE(want.ok() && exact.ok() && stored.ok()) << f.name << render(exact.errors(), nullptr);
        for (const auto& [name, w] : *want) {
          const Array &e = exact->at(name), &s = stored->at(name);
          ASSERT_EQ(e.shape, w.shape);
          for (size_t k = 0; k < w.reals.size(); ++k) {
            ASSERT_NEAR(e.reals[k], w.reals[k], 1e-12 * (1 + std::fabs(w.reals[k]))) << f.name << " program " << i;
            ASSERT_LE(std::fabs(s.reals[k] - w.reals[k]), w.errors[k] + e.errors[k]) << f.name << " program " << i;
          }
        }
        pairs += i > 0;
      }
    }
  }
  EXPECT_GT(pairs, 100u);
}

}  // namespace
}  // namespace cleave::leir
