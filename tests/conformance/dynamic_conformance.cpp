// Serving records of ragged and paged attention: one compilation for each operator and column serves every record.
//
// Reads a file of operators and records (tools/conformance dynamic -h says which), compiles the operator's graph of
// examples/dynamic once for the reduced heads and widths of the `cpu` column (and once for the full ones with --full),
// and runs all records through it in random order: outputs and base-2 log-sums against a float64 evaluation of what
// attention means, written here and sharing nothing with the compiler. Outputs and workspaces start as NaN with guard
// bytes around them, slots of the cache that no request names hold NaN.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "algebra/search.hpp"
#include "base/codes.hpp"
#include "base/rng.hpp"
#include "graph/expand.hpp"
#include "jit/build.hpp"
#include "runtime/timing.hpp"
#include "schedule/schedule.hpp"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string data, graphs = CLEAVE_SOURCE_DIR "/examples/dynamic", only, record;
  bool full = false, verbose = false, unfused = false, no_search = false;
  uint64_t seed = 1;
  int threads = 1;
  int64_t part = 0;
};

[[noreturn]] void die(const std::string& why) {
  std::cerr << "dynamic_conformance: " << why << "\n";
  std::exit(3);
}

// The shape of an operator at one column.
struct Sizes {
  bool mla = false, paged = false, prefill = false;
  int64_t heads = 1, kv_heads = 1, qk = 1, vo = 1, rotary = 0, page = 1;
  bool last_page = false;
};

struct Operator {
  std::string name, graph;
  Sizes full;
  std::map<std::string, int64_t> dims(const Sizes& s) const {
    if (graph == "mla_ragged_prefill") return {{"H", s.heads}, {"D", s.qk}, {"E", s.vo}};
    if (s.mla) return {{"H", s.heads}, {"C", s.vo}, {"E", s.rotary}};
    return {{"KV", s.kv_heads}, {"R", s.heads / s.kv_heads}, {"D", s.vo}};
  }
};

int64_t number(const Json& j, const char* key, int64_t otherwise) {
  return j.contains(key) && j[key].is_number_integer() ? j[key].get<int64_t>() : otherwise;
}

// Names say the kind: {gqa,mla}_{paged,ragged}_{decode,prefill}..., axes_const the sizes.
Operator operator_of(const std::string& name, const Json& axes) {
  Operator o;
  o.name = name;
  Sizes& s = o.full;
  s.mla = name.rfind("mla_", 0) == 0;
  s.paged = name.find("_paged_") != std::string::npos;
  s.prefill = name.find("_prefill") != std::string::npos;
  s.page = number(axes, "page_size", 1);
  s.heads = number(axes, "num_qo_heads", 1);
  s.kv_heads = number(axes, "num_kv_heads", 1);
  s.last_page = s.page > 1;
  if (s.mla && s.paged) {
    s.kv_heads = 1;
    s.vo = number(axes, "head_dim_ckv", 1);
    s.rotary = number(axes, "head_dim_kpe", 1);
    s.qk = s.vo + s.rotary;
  } else if (s.mla) {
    s.qk = number(axes, "head_dim_qk", 1);
    s.vo = number(axes, "head_dim_vo", 1);
  } else {
    s.qk = s.vo = number(axes, "head_dim", 1);
  }
  o.graph =
      fmt::format("{}_{}_{}", s.mla ? "mla" : "gqa", s.paged ? "paged" : "ragged", s.prefill ? "prefill" : "decode");
  if (s.page > 1) o.graph += fmt::format("_page{}", s.page);
  return o;
}

// Sizes from a name like gqa_paged_decode_h24_kv4_d128_ps64, for operators that come without axes.
Json axes_of_name(const std::string& name) {
  Json out = Json::object();
  std::stringstream words(name);
  for (std::string w; std::getline(words, w, '_');) {
    const auto value = [&](size_t prefix) { return std::stoll(w.substr(prefix)); };
    const auto is = [&](const char* prefix) {
      const size_t n = std::strlen(prefix);
      return w.size() > n && w.compare(0, n, prefix) == 0 && std::isdigit(static_cast<unsigned char>(w[n]));
    };
    if (is("h")) out["num_qo_heads"] = value(1);
    if (is("kv")) out["num_kv_heads"] = value(2);
    if (is("d")) out["head_dim"] = value(1);
    if (is("ps")) out["page_size"] = value(2);
  }
  return out;
}

// The reduced heads and widths of the `cpu` column.
Sizes reduced(const Sizes& s) {
  Sizes r = s;
  if (s.mla && s.paged) {
    r.heads = 4, r.vo = 64, r.rotary = 8, r.qk = 72;
  } else if (s.mla) {
    r.heads = r.kv_heads = 4, r.qk = 24, r.vo = 16;
  } else {
    const int64_t ratio = std::max<int64_t>(1, s.heads / s.kv_heads);
    r.kv_heads = s.kv_heads >= 8 ? 2 : 1;
    r.heads = r.kv_heads * ratio;
    r.qk = r.vo = 32;
  }
  return r;
}

struct Record {
  std::string uuid;
  std::vector<int64_t> q_lens, kv_lens;
  double sm_scale = 0;
  double flops = 0;
  int64_t divisor = 1;
  int last_page_len = 0;  // given: of every request
  enum class Slots { random, repeated, descending } slots = Slots::random;
};

// Rows of floats with guards, NaN at first.
struct Rows {
  std::vector<float> memory;
  int64_t rows, width;
  static constexpr int64_t kGuard = 32;
  Rows(int64_t r, int64_t w) : memory(static_cast<size_t>(r * w + 2 * kGuard), std::nanf("")), rows(r), width(w) {
    for (int64_t i = 0; i < kGuard; ++i)
      memory[static_cast<size_t>(i)] = memory[memory.size() - 1 - static_cast<size_t>(i)] = 12345.0f;
  }
  float* data() { return memory.data() + kGuard; }
  bool guarded() const {
    for (int64_t i = 0; i < kGuard; ++i)
      if (memory[static_cast<size_t>(i)] != 12345.0f || memory[memory.size() - 1 - static_cast<size_t>(i)] != 12345.0f)
        return false;
    return true;
  }
};

struct Compiled {
  jit::Built built;
  std::string summary;
  Sizes sizes;
  std::vector<std::string> dims;
};

cleave::Result<std::string> graph_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return diagnose(Code::file_unreadable, path, "there is no graph for this operator");
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

// A graph for pages of another size than those of the file.
std::string with_page(std::string text, int64_t page) {
  for (size_t at = 0; (at = text.find("64", at)) != std::string::npos;) {
    const bool alone = (at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1]))) &&
                       (at + 2 >= text.size() || !std::isalnum(static_cast<unsigned char>(text[at + 2])));
    if (!alone || (at > 0 && text[at - 1] == '.')) {
      at += 2;
      continue;
    }
    const std::string number = std::to_string(page);
    text.replace(at, 2, number);
    at += number.size();
  }
  return text;
}

int64_t median(std::vector<int64_t> x) {
  if (x.empty()) return 0;
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

int64_t reduced_length(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

// The lengths of a record at a column.
struct Lengths {
  std::vector<int64_t> q, kv, pages;
  int64_t total_q = 0, total_pages = 0, longest_q = 0, longest_kv = 0;
};
Lengths lengths_of(const Record& r, const Sizes& s, bool full) {
  Lengths out;
  const int64_t d = full ? 1 : r.divisor;
  for (size_t b = 0; b < r.kv_lens.size(); ++b) {
    const int64_t q = s.prefill ? reduced_length(r.q_lens[b], d) : 1;
    const int64_t kv = reduced_length(r.kv_lens[b], d), pages = reduced_length(kv, s.page);
    out.q.push_back(q);
    out.kv.push_back(kv);
    out.pages.push_back(pages);
    out.total_q += q;
    out.total_pages += pages;
    out.longest_q = std::max(out.longest_q, q);
    out.longest_kv = std::max(out.longest_kv, kv);
  }
  return out;
}

std::map<std::string, int64_t> values_of(const Lengths& l, const Sizes& s, int64_t pool) {
  std::map<std::string, int64_t> v = {{"B", static_cast<int64_t>(l.kv.size())}, {"L", l.longest_kv}};
  if (s.paged) v["PAGES"] = pool, v["N"] = l.total_pages;
  if (!s.paged) v["TK"] = l.total_pages;
  if (s.prefill) v["TQ"] = l.total_q, v["S"] = l.longest_q;
  return v;
}

Result<Compiled> compile(const Operator& op, const Sizes& sizes, const std::vector<Record>& records, bool full,
                         const Options& o) {
  const std::string path =
      o.graphs + "/" + (sizes.page > 1 ? op.graph.substr(0, op.graph.rfind("_page")) + "_page64" : op.graph) + ".graph";
  TRY_ASSIGN(std::string text, graph_text(path));
  if (sizes.page > 1) text = with_page(std::move(text), sizes.page);
  TRY_ASSIGN(const graph::Graph parsed, graph::parse({path, text}));
  TRY_ASSIGN(const graph::Graph bound, graph::bind(parsed, op.dims(sizes)));
  // The middle of the records is what speed is chosen for.
  std::map<std::string, std::vector<int64_t>> seen;
  for (const Record& r : records) {
    const Lengths l = lengths_of(r, sizes, full);
    for (const auto& [name, value] : values_of(l, sizes, 2 * l.total_pages + 1)) seen[name].push_back(value);
  }
  for (const sym::Expr d : bound.dims())
    bound.syms().set_typical(d, std::max<int64_t>(1, median(seen[bound.syms().symbol_name(d)])));
  graph::Graph chosen = graph::expand_for_search(bound);
  if (!o.no_search && !o.unfused) {
    TRY_ASSIGN(algebra::SearchResult found, algebra::search(chosen, {}));
    // The last of the cheapest: the search lists the input first.
    size_t best = 0;
    for (size_t i = 0; i < found.graphs.size(); ++i)
      if (found.graphs[i].cost < found.graphs[best].cost) best = i;
    chosen = std::move(found.graphs[best].graph);
  }
  schedule::Options so;
  so.machine = host_machine();
  so.keep = 2;
  so.part = o.part;
  schedule::Candidate candidate;
  if (o.unfused) {
    TRY_ASSIGN(candidate, schedule::unfused(chosen, so));
  } else {
    TRY_ASSIGN(auto all, schedule::candidates(chosen, so));
    candidate = std::move(all.front());
  }
  if (o.verbose) std::cerr << graph::print(chosen) << itgraph::print(candidate.it) << tile::print(candidate.program);
  Compiled out;
  TRY_ASSIGN(out.built, jit::build(candidate.program));
  out.summary = candidate.summary;
  out.sizes = sizes;
  for (const sym::Expr d : candidate.program.dims) out.dims.push_back(candidate.program.syms->symbol_name(d));
  return out;
}

void fill(std::vector<float>& x, Rng& rng) {
  for (float& v : x) v = static_cast<float>(rng.normal());
}

std::vector<int32_t> pointers(const std::vector<int64_t>& lens) {
  std::vector<int32_t> out = {0};
  for (const int64_t n : lens) out.push_back(static_cast<int32_t>(out.back() + n));
  return out;
}

// Runs one record; empty when all is right.
std::string run(const Compiled& c, const Record& r, bool full, uint64_t seed, Executor& executor) {
  const Sizes& s = c.sizes;
  const Lengths l = lengths_of(r, s, full);
  const auto requests = static_cast<int64_t>(l.kv.size());
  Rng rng(seed);
  const int64_t pool = s.paged ? 2 * l.total_pages + 1 : l.total_pages;
  std::vector<int32_t> slots(static_cast<size_t>(l.total_pages));
  if (s.paged) {
    std::vector<int32_t> all(static_cast<size_t>(pool));
    std::iota(all.begin(), all.end(), 0);
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
    for (size_t i = 0; i < slots.size(); ++i)
      slots[i] = r.slots == Record::Slots::repeated     ? all[i % std::max<size_t>(1, slots.size() / 3)]
                 : r.slots == Record::Slots::descending ? static_cast<int32_t>(slots.size() - 1 - i)
                                                        : all[i];
  } else {
    std::iota(slots.begin(), slots.end(), 0);
  }
  // Positions that a request attends; everything else of the cache is NaN.
  const int64_t positions = pool * s.page;
  std::vector<bool> attended(static_cast<size_t>(positions));
  std::vector<std::vector<int64_t>> position(l.kv.size());
  std::vector<int32_t> last_page(l.kv.size(), 1);
  for (size_t b = 0, first = 0; b < l.kv.size(); first += static_cast<size_t>(l.pages[b]), ++b) {
    for (int64_t j = 0; j < l.kv[b]; ++j) {
      position[b].push_back(int64_t{slots[first + static_cast<size_t>(j / s.page)]} * s.page + j % s.page);
      attended[static_cast<size_t>(position[b].back())] = true;
    }
    if (l.kv[b] > 0) last_page[b] = static_cast<int32_t>((l.kv[b] - 1) % s.page + 1);
  }
  const bool latent = s.mla && s.paged;
  const int64_t kh = s.kv_heads, key_width = latent ? s.vo : s.qk;
  std::vector<float> q(static_cast<size_t>(l.total_q * s.heads * key_width)),
      qr(static_cast<size_t>(latent ? l.total_q * s.heads * s.rotary : 0));
  std::vector<float> k(static_cast<size_t>(positions * kh * key_width)),
      kr(static_cast<size_t>(latent ? positions * s.rotary : 0)),
      v(static_cast<size_t>(latent ? 0 : positions * kh * s.vo));
  for (auto* x : {&q, &qr, &k, &kr, &v}) fill(*x, rng);
  for (int64_t p = 0; p < positions; ++p) {
    if (attended[static_cast<size_t>(p)]) continue;
    for (auto [x, width] :
         {std::pair{&k, kh * key_width}, std::pair{&kr, latent ? s.rotary : 0}, std::pair{&v, latent ? 0 : kh * s.vo}})
      std::fill_n(x->begin() + p * width, width, std::nanf(""));
  }
  std::vector<int32_t> qo = pointers(l.q), kv = pointers(s.paged ? l.pages : l.kv);

  std::vector<jit::TensorView> in;
  const auto floats = [&](std::vector<float>& x, std::vector<int64_t> shape) {
    in.push_back({x.data(), DType::f32, std::move(shape), {}});
  };
  const auto ints = [&](std::vector<int32_t>& x) {
    in.push_back({x.data(), DType::i32, {static_cast<int64_t>(x.size())}, {}});
  };
  floats(q, {l.total_q, s.heads, key_width});
  if (latent) floats(qr, {l.total_q, s.heads, s.rotary});
  if (latent) {
    floats(k, {pool, s.page, s.vo});
    floats(kr, {pool, s.page, s.rotary});
  } else if (s.paged) {
    floats(k, {pool, s.page, kh, s.qk});
    floats(v, {pool, s.page, kh, s.vo});
  } else {
    floats(k, {pool, kh, s.qk});
    floats(v, {pool, kh, s.vo});
  }
  if (s.prefill) ints(qo);
  ints(kv);
  if (s.paged) ints(slots);
  if (s.last_page) ints(last_page);
  Rows output(l.total_q, s.heads * s.vo), lse(l.total_q, s.heads);
  const std::vector<jit::TensorView> out = {{output.data(), DType::f32, {l.total_q, s.heads, s.vo}, {}},
                                            {lse.data(), DType::f32, {l.total_q, s.heads}, {}}};
  jit::RunOptions run;
  run.executor = &executor;
  std::vector<int64_t> extents;
  const auto values = values_of(l, s, pool);
  for (const std::string& d : c.dims) extents.push_back(values.at(d));
  run.extents = extents;
  const auto bytes = c.built.workspace_bytes(extents);
  if (!bytes) return render(bytes.errors(), nullptr);
  if (*bytes > (int64_t{24} << 30)) return fmt::format("its workspace would take {} bytes", *bytes);
  runtime::Buffer workspace(*bytes + 64);
  std::memset(workspace.data(), 0xff, static_cast<size_t>(workspace.size()));
  run.workspace = workspace.data();
  const double scalars[] = {r.sm_scale};
  if (const Diagnostics bad = c.built.run(in, scalars, out, nullptr, run); !bad.empty()) return render(bad, nullptr);
  for (int64_t i = 0; i < 64; ++i)
    if (workspace.bytes()[*bytes + i] != 0xff) return "the workspace was overrun";
  if (!output.guarded() || !lse.guarded()) return "an output was overrun";

  // What attention means, row by row.
  const float scale = static_cast<float>(r.sm_scale);
  std::vector<double> expected(static_cast<size_t>(s.vo)), score;
  for (int64_t b = 0, row = 0; b < requests; ++b) {
    const auto at = static_cast<size_t>(b);
    for (int64_t i = 0; i < l.q[at]; ++i, ++row) {
      const int64_t seen = s.prefill ? std::clamp<int64_t>(i + 1 + l.kv[at] - l.q[at], 0, l.kv[at]) : l.kv[at];
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t g = h / (s.heads / kh);
        const float* query = &q[static_cast<size_t>((row * s.heads + h) * key_width)];
        score.assign(static_cast<size_t>(seen), 0);
        double most = -INFINITY, size = 0, largest = 0;
        for (int64_t j = 0; j < seen; ++j) {
          const int64_t p = position[at][static_cast<size_t>(j)];
          double sum = 0, magnitude = 0;
          const auto add = [&](const float* x, const float* y, int64_t n) {
            for (int64_t d = 0; d < n; ++d) {
              const double t = double(x[d]) * double(y[d]);
              sum += t;
              magnitude += std::fabs(t);
            }
          };
          add(query, &k[static_cast<size_t>((p * kh + g) * key_width)], key_width);
          if (latent)
            add(&qr[static_cast<size_t>((row * s.heads + h) * s.rotary)], &kr[static_cast<size_t>(p * s.rotary)],
                s.rotary);
          score[static_cast<size_t>(j)] = sum * scale;
          most = std::max(most, sum * scale);
          size = std::max(size, magnitude * std::fabs(scale));
        }
        double total = 0;
        std::fill(expected.begin(), expected.end(), 0.0);
        const std::vector<float>& values_at = latent ? k : v;
        for (int64_t j = 0; j < seen; ++j) {
          const double w = std::exp(score[static_cast<size_t>(j)] - most);
          total += w;
          const float* x = &values_at[static_cast<size_t>((position[at][static_cast<size_t>(j)] * kh + g) * s.vo)];
          for (int64_t d = 0; d < s.vo; ++d) {
            expected[static_cast<size_t>(d)] += w * x[d];
            largest = std::max(largest, std::fabs(double(x[d])));
          }
        }
        // Scores are sums of qk products in f32, weights exponentials of them, sums run over the keys.
        constexpr double kUnit = 0x1p-24;
        const double score_error = kUnit * ((double(s.qk) / 4 + 8) * size + 4 * std::fabs(most) + 8);
        const double sum_error = kUnit * (std::sqrt(double(seen)) + 64);
        const double want_lse = seen == 0 ? -INFINITY : (most + std::log(total)) / std::log(2.0);
        const double got_lse = lse.data()[row * s.heads + h];
        const double lse_bound = 2 * (score_error + sum_error) + 2e-7 * std::fabs(want_lse);
        if (!(got_lse == want_lse || std::fabs(got_lse - want_lse) <= lse_bound))
          return fmt::format("lse of request {} row {} head {}: {}, not {} (within {:.1e})", b, i, h, got_lse, want_lse,
                             lse_bound);
        const double bound = (3 * score_error + sum_error) * largest;
        for (int64_t d = 0; d < s.vo; ++d) {
          const double want = seen == 0 ? 0 : expected[static_cast<size_t>(d)] / total;
          const double got = output.data()[(row * s.heads + h) * s.vo + d];
          if (!(std::fabs(got - want) <= bound) && !(seen == 0 && got == 0))
            return fmt::format("output of request {} row {} head {} element {}: {}, not {} (within {:.1e})", b, i, h, d,
                               got, want, bound);
        }
      }
    }
  }
  return "";
}

std::vector<int64_t> integers(const Json& j) {
  std::vector<int64_t> out;
  for (const Json& x : j) out.push_back(x.get<int64_t>());
  return out;
}

// Records of an operator that is given by its lengths, or by totals that are split evenly.
std::vector<Record> extra_records(const Json& e, const Operator& op) {
  std::vector<Record> out;
  const double scale = 1 / std::sqrt(double(op.full.qk));
  const int64_t page = op.full.page;
  const int last = static_cast<int>(number(e, "kv_last_page_len", 0));
  if (e.contains("rows")) {
    for (const Json& row : e["rows"]) {
      const auto batch = row[0].get<int64_t>(), pages = row[2].get<int64_t>();
      Record r;
      r.uuid = fmt::format("{}-{}-{}", batch, row[1].get<int64_t>(), pages);
      Rng rng(static_cast<uint64_t>(pages * 131 + batch));
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t n = pages / batch + (b < pages % batch);
        r.q_lens.push_back(1);
        r.kv_lens.push_back(n == 0 ? 0 : (n - 1) * page + rng.between(1, page));
      }
      r.sm_scale = scale;
      out.push_back(std::move(r));
    }
    return out;
  }
  Record r;
  r.uuid = "extra";
  r.sm_scale = scale;
  if (e.contains("kv_pages")) {
    const std::vector<int64_t> pages = e["kv_pages"].is_string() ? integers(e["q_lens"]) : integers(e["kv_pages"]);
    for (const int64_t n : pages) r.kv_lens.push_back(n == 0 ? 0 : (n - 1) * page + std::max(last, 1));
  } else if (e.contains("kv_lens") && e["kv_lens"].is_array()) {
    r.kv_lens = integers(e["kv_lens"]);
  } else {
    r.kv_lens = integers(e["q_lens"]);
  }
  r.q_lens = e.contains("q_lens") ? integers(e["q_lens"]) : std::vector<int64_t>(r.kv_lens.size(), 1);
  out.push_back(std::move(r));
  return out;
}

double work(const Record& r, const Sizes& s, bool full) {
  const Lengths l = lengths_of(r, s, full);
  double pairs = 0;
  for (size_t b = 0; b < l.kv.size(); ++b)
    for (int64_t i = 0; i < l.q[b]; ++i)
      pairs += static_cast<double>(s.prefill ? std::clamp<int64_t>(i + 1 + l.kv[b] - l.q[b], 0, l.kv[b]) : l.kv[b]);
  return 2 * pairs * static_cast<double>(s.heads) * static_cast<double>(s.qk + s.vo);
}

int main_of(const Options& o) {
  Json data;
  try {
    std::ifstream file(o.data);
    if (!file) die("`" + o.data + "` cannot be read");
    data = Json::parse(file);
  } catch (const std::exception& e) {
    die("`" + o.data + "`: " + e.what());
  }
  struct Work {
    Operator op;
    std::vector<Record> records;
  };
  std::vector<Work> all;
  try {
    for (const Json& op : data.value("operators", Json::array()))
      all.push_back({operator_of(op.at("name"), op.at("axes_const")), {}});
    for (const Json& w : data.value("workloads", Json::array())) {
      const std::string name = w.at("op");
      auto it = std::find_if(all.begin(), all.end(), [&](const Work& x) { return x.op.name == name; });
      if (it == all.end()) die("a record is of the operator `" + name + "`, which is not described");
      Record r;
      r.uuid = w.at("uuid");
      r.q_lens = integers(w.at("q_lens"));
      r.kv_lens = integers(w.at("kv_lens"));
      r.sm_scale = w.at("sm_scale");
      r.flops = w.value("flops", 0.0);
      if (w.contains("cpu")) r.divisor = std::max<int64_t>(1, number(w["cpu"], "len_divisor", 1));
      if (r.q_lens.size() != r.kv_lens.size())
        die("record " + r.uuid + " has " + std::to_string(r.q_lens.size()) + " query lengths and " +
            std::to_string(r.kv_lens.size()) + " key lengths");
      it->records.push_back(std::move(r));
    }
    for (const Json& e : data.value("extra_operators", Json::array())) {
      const std::string name = e.at("name");
      Operator op = operator_of(name, e.contains("axes_const") ? e["axes_const"] : axes_of_name(name));
      std::vector<Record> records = extra_records(e, op);
      // At the reduced column lengths are cut so that a record stays small.
      for (Record& r : records)
        while (work(r, reduced(op.full), false) > 1.2e8) r.divisor *= 2;
      all.push_back({std::move(op), std::move(records)});
    }
  } catch (const std::exception& e) {
    die("`" + o.data + "`: " + e.what());
  }

  std::unique_ptr<Executor> executor;
  if (o.threads > 1)
    executor = std::make_unique<ThreadPool>(o.threads);
  else
    executor = std::make_unique<SerialExecutor>();
  Json operators = Json::array();
  bool right = true;
  for (const Work& w : all) {
    if (!o.only.empty() && w.op.name.find(o.only) == std::string::npos) continue;
    for (const bool full : {false, true}) {
      if (full && !o.full) continue;
      const Sizes sizes = full ? w.op.full : reduced(w.op.full);
      std::vector<Record> records;
      for (const Record& r : w.records)
        if (o.record.empty() || r.uuid.find(o.record) != std::string::npos)
          if (!full || work(r, sizes, true) < 1e9) records.push_back(r);
      if (records.empty()) continue;
      // Pages may be named twice, or from the last to the first.
      const size_t given = records.size();
      if (sizes.paged && o.record.empty())
        for (const auto slots : {Record::Slots::repeated, Record::Slots::descending}) {
          Record again = records[given / 2];
          again.slots = slots;
          again.uuid += slots == Record::Slots::repeated ? "/repeated" : "/descending";
          records.push_back(std::move(again));
        }
      const double begin = runtime::wall_seconds();
      auto compiled = compile(w.op, sizes, records, full, o);
      const double compile_seconds = runtime::wall_seconds() - begin;
      Json entry = {{"name", w.op.name},
                    {"column", full ? "full" : "cpu"},
                    {"compilations", compiled ? 1 : 0},
                    {"records", records.size()},
                    {"passed", 0},
                    {"failed", Json::array()}};
      if (!compiled) {
        std::cerr << w.op.name << ": " << render(compiled.errors(), nullptr);
        for (const Record& r : records) entry["failed"].push_back(r.uuid);
        entry["why"] = render(compiled.errors(), nullptr);
        right = false;
      } else {
        // Any order of the records.
        Rng rng(o.seed + (full ? 77 : 0));
        for (size_t i = records.size(); i > 1; --i) std::swap(records[i - 1], records[rng.below(i)]);
        int passed = 0;
        for (const Record& r : records) {
          const double start = runtime::wall_seconds();
          const std::string wrong =
              run(*compiled, r, full, o.seed + std::hash<std::string>{}(r.uuid) % 1000003, *executor);
          if (o.verbose)
            std::cerr << w.op.name << " " << r.uuid << fmt::format(" {:.3f} s\n", runtime::wall_seconds() - start);
          if (wrong.empty()) {
            ++passed;
          } else {
            std::cerr << w.op.name << " " << r.uuid << ": " << wrong << "\n";
            entry["failed"].push_back(r.uuid);
            right = false;
          }
        }
        entry["passed"] = passed;
        entry["schedule"] = compiled->summary;
      }
      entry["compile_seconds"] = compile_seconds;
      entry["seconds"] = runtime::wall_seconds() - begin;
      operators.push_back(std::move(entry));
    }
  }
  std::cout << Json{{"schema", "cleave.conformance.dynamic/1"}, {"operators", operators}}.dump(2) << "\n";
  return right ? 0 : 1;
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  cleave::Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) cleave::die("`" + a + "` needs a value");
      return argv[++i];
    };
    if (a == "--data")
      o.data = value();
    else if (a == "--graphs")
      o.graphs = value();
    else if (a == "--only")
      o.only = value();
    else if (a == "--record")
      o.record = value();
    else if (a == "--seed")
      o.seed = std::strtoull(value().c_str(), nullptr, 10);
    else if (a == "--threads")
      o.threads = std::max(1, std::atoi(value().c_str()));
    else if (a == "--part")
      o.part = std::max(0, std::atoi(value().c_str()));
    else if (a == "--full")
      o.full = true;
    else if (a == "--unfused")
      o.unfused = true;
    else if (a == "--no-search")
      o.no_search = true;
    else if (a == "--verbose")
      o.verbose = true;
    else
      cleave::die("`" + a + "` is no option");
  }
  if (o.data.empty()) cleave::die("`--data FILE` is missing");
  try {
    return cleave::main_of(o);
  } catch (const std::exception& e) {
    std::cerr << "dynamic_conformance: " << e.what() << "\n";
    return 1;
  }
}
