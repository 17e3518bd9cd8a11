// report.html: what was found, in one file that needs no network.
#include <algorithm>
#include <cmath>

#include "base/number.hpp"
#include "driver/constants.hpp"
#include "driver/report.hpp"

namespace cleave::driver {

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string ms(double seconds) { return seconds > 0 ? fmt::format("{:.4g} ms", 1e3 * seconds) : "-"; }
std::string percent(std::optional<double> v) { return v ? fmt::format("{:.0f} %", *v) : "-"; }

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%}"
    "td,th{padding:.25em .6em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}pre{background:#f6f6f4;padding:.8em;overflow:auto;font-size:12.5px}"
    "summary{cursor:pointer;font-weight:600}svg text{font:12px system-ui,sans-serif;fill:#444}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#222}td,th{border-color:#333}"
    "svg text{fill:#bbb}}";

struct Html {
  std::string out;
  void heading(std::string_view text) { out += fmt::format("<h2>{}</h2>\n", escaped(text)); }
  void row(std::initializer_list<std::string> cells, const char* tag = "td") {
    out += "<tr>";
    for (const std::string& c : cells) out += fmt::format("<{0}>{1}</{0}>", tag, escaped(c));
    out += "</tr>\n";
  }
  void text(std::string_view title, std::string_view body) {
    out += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escaped(title), escaped(body));
  }
};

// Predicted against measured time of the candidates, both axes logarithmic.
std::string scatter(const tune::Outcome& o) {
  struct Point {
    double x, y;
    bool chosen;
    std::string title;
  };
  std::vector<Point> points;
  for (size_t i = 0; i < o.trials.size(); ++i) {
    const tune::Trial& t = o.trials[i];
    if (t.seconds > 0 && t.predicted_seconds > 0)
      points.push_back({t.predicted_seconds, t.seconds, static_cast<int>(i) == o.chosen, t.summary});
  }
  if (o.unfused.seconds > 0 && o.unfused.predicted_seconds > 0)
    points.push_back({o.unfused.predicted_seconds, o.unfused.seconds, o.chosen < 0, o.unfused.summary});
  if (points.size() < 2) return "";
  double low = INFINITY, high = 0;
  for (const Point& p : points) low = std::min({low, p.x, p.y}), high = std::max({high, p.x, p.y});
  low /= 1.1, high *= 1.1;
  constexpr double kSize = 340, kLeft = 60, kTop = 10;
  const auto at = [&](double v) { return kSize * std::log(v / low) / std::log(high / low); };
  std::string out = fmt::format(
      "<svg width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"predicted against measured time\">"
      "<rect x=\"{2}\" y=\"{3}\" width=\"{4}\" height=\"{4}\" fill=\"none\" stroke=\"#999\"/>"
      "<line x1=\"{2}\" y1=\"{5}\" x2=\"{6}\" y2=\"{3}\" stroke=\"#999\" stroke-dasharray=\"4 4\"/>",
      kLeft + kSize + 20, kTop + kSize + 45, kLeft, kTop, kSize, kTop + kSize, kLeft + kSize);
  for (const Point& p : points)
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\" fill-opacity=\"0.7\"><title>{}: predicted {}, "
        "measured "
        "{}</title></circle>",
        kLeft + at(p.x), kTop + kSize - at(p.y), p.chosen ? "#d1495b" : "#30638e", escaped(p.title), ms(p.x), ms(p.y));
  for (const double v : {low * 1.1, high / 1.1})
    out += fmt::format(
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.3g}</text>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>",
        kLeft + at(v), kTop + kSize + 16, 1e3 * v, kLeft - 6, kTop + kSize - at(v) + 4, 1e3 * v);
  return out +
         fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">predicted, ms (measured: upwards)</text></svg>\n",
                     kLeft + kSize / 2, kTop + kSize + 36);
}

}  // namespace

std::string report_html(const Compilation& c) {
  const tune::Outcome& o = *c.outcome;
  Html h;
  const std::string name = escaped(c.input.name());
  h.out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n",
      name, kStyle);
  h.out += fmt::format("<p>{}, {} threads, {}. Made by cleave {}: <code>{}</code></p>\n", escaped(c.machine.name),
                       c.options.threads, status(c), version(), escaped(c.options.command));
  h.heading("Result");
  h.out += "<table>";
  h.row({"", "time", "of the multiply-add peak", "predicted", "schedule"}, "th");
  h.row({"unfused", ms(o.unfused_seconds), percent(peak_pct(c, *c.unfused, o.unfused_seconds)), ms(c.unfused->seconds),
         c.unfused->summary});
  h.row({"chosen", ms(o.seconds), percent(peak_pct(c, o.candidate, o.seconds)), ms(o.candidate.seconds),
         o.candidate.summary});
  h.out += "</table>\n";
  if (o.chosen >= 0 && !o.elsewhere && o.seconds > 0)
    h.out += fmt::format("<p>Speedup over unfused {:.3f} (95 %: {:.3f} to {:.3f}, interleaved pairs).</p>\n", o.speedup,
                         o.speedup_interval.low, o.speedup_interval.high);
  else if (o.chosen < 0)
    h.out += "<p>No candidate was faster with 95 % confidence: the unfused schedule is used.</p>\n";
  if (o.unfused.verdict)
    h.out += fmt::format(
        "<p>Error {:.2e} of the largest magnitude, unfused {:.2e}, derived bound {}; {} elements were compared with "
        "float64.</p>\n",
        shown(o.verdict.max_rel), shown(o.unfused.verdict->max_rel),
        o.verdict.unbounded < o.verdict.elements ? fmt::format("{:.2e}", o.verdict.bound) : "not known",
        o.verdict.elements);
  for (const std::string& n : c.notes) h.out += fmt::format("<p>Note: {}</p>\n", escaped(n));

  h.heading("Kernels");
  h.out += "<table>";
  h.row({"kernel", "time", "predicted", "Gflop", "MB", "of the roofline", "bound by"}, "th");
  for (const KernelReport& k : kernel_reports(c))
    h.row({k.name, k.seconds ? ms(*k.seconds) : "-", k.predicted_seconds ? ms(*k.predicted_seconds) : "-",
           k.flops ? fmt::format("{:.4g}", *k.flops / 1e9) : "-", k.bytes ? fmt::format("{:.4g}", *k.bytes / 1e6) : "-",
           percent(k.roofline_pct), k.bound_by});
  h.out += "</table>\n";

  h.heading("Candidates");
  h.out += scatter(o);
  h.out += "<table>";
  h.row({"schedule", "graph", "predicted", "measured", "verdict"}, "th");
  for (const tune::Trial& t : o.trials)
    h.row({t.summary, fmt::format("{}", t.graph), ms(t.predicted_seconds), ms(t.seconds),
           t.why.empty() ? std::string(tune::name(t.state)) : fmt::format("{}: {}", tune::name(t.state), t.why)});
  h.out += "</table>\n";

  h.heading("Time spent");
  h.out += "<table>";
  h.row({"pass", "seconds"}, "th");
  for (const PassTime& t : c.times) h.row({t.name, fmt::format("{:.3f}", t.seconds)});
  h.out += "</table>\n";

  h.heading("Stages");
  h.text("graph, as given", graph::print(with_constant_files(*c.bound)));
  if (o.chosen >= 0) {
    const Equal& e = c.equal.at(static_cast<size_t>(o.trials[static_cast<size_t>(o.chosen)].graph));
    h.text("graph that was chosen", graph::print(with_constant_files(e.graph)));
    std::string steps;
    for (const algebra::Derived& d : e.derivation)
      steps += fmt::format("{} [{}]\n  {}\n  -> {}\n", d.value, d.rule, d.before, d.after);
    if (!steps.empty()) h.text("how it was derived", steps);
  }
  h.text("schedule", itgraph::print(o.candidate.it));
  h.text("tile program", tile::print(o.candidate.program));
  return h.out + "</body></html>\n";
}

}  // namespace cleave::driver
