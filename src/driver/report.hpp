// What a compilation says about itself, as numbers, as JSON and as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/pipeline.hpp"

namespace cleave::driver {

struct KernelReport {
  std::string name;
  std::optional<double> seconds;  // measured, one thread
  std::optional<double> predicted_seconds;
  std::optional<double> flops, bytes;  // of the cost model: useful arithmetic, compulsory traffic
  std::optional<double> roofline_pct;  // max(flops / peak, bytes / bandwidth) over the measured time
  std::string bound_by;                // "compute" or "memory"; empty when it is not known
};
std::vector<KernelReport> kernel_reports(const Compilation& c);

// The share of the work inside what the algebra understands, and the operators outside of it.
struct Coverage {
  double share = 1;
  std::vector<std::pair<std::string, std::string>> left_out;  // operator, why
};
Coverage coverage(const Compilation& c);

// Memory of the chosen program in bytes, for the typical extents.
struct Memory {
  int64_t workspace = 0;  // of intermediates, in each call
  int64_t separate = 0;   // what that would be if no two intermediates shared memory
  int64_t packed = 0;     // constants in another layout, once
};
std::optional<Memory> memory(const Compilation& c);

// Useful operations of a candidate over its time, in per cent of the FMA peak measured beside it; nullopt when
// something of it was not measured.
std::optional<double> peak_pct(const Compilation& c, const schedule::Candidate& candidate, double seconds);

const char* status(const Compilation& c);  // complete, budget, interrupted

std::string result_json(const Compilation& c);    // cleave.result/1
std::string search_json(const Compilation& c);    // cleave.search/1
std::string schedule_json(const Compilation& c);  // cleave.schedule/1
std::string manifest_json(const Compilation& c,
                          const std::vector<std::pair<std::string, std::string>>& hashes);  // cleave.manifest/1
std::string errors_json(const Diagnostics& errors, const SourceText* source);               // cleave.error/1
std::string candidates_jsonl(const Compilation& c);
std::string path_json(const Compilation& c);    // cleave.path/1: the steps from the input graph to the chosen one
std::string trace_json(const Compilation& c);   // Chrome's trace format
std::string report_html(const Compilation& c);  // one page, no network

std::string graph_svg(const graph::Graph& graph);  // a drawing, at most 2000 nodes

std::string result_text(const Compilation& c);  // for people
std::string search_text(const Compilation& c, bool derivations);
std::string schedule_text(const Compilation& c);
std::string times_text(const Compilation& c);  // the passes' timing table

}  // namespace cleave::driver
