// Cleave for C++: read or build a graph of tensor operators, optimise it, run it on your buffers.
//
//   cleave::Graph graph = cleave::Graph::load("attention.graph");
//   cleave::Optimized best = cleave::optimize(graph);
//   std::vector<cleave::Tensor> out = best.program().run({q, k, v});
//
// Link with cleave::cleave (find_package(cleave CONFIG)) or with what `pkg-config --cflags --libs cleave` says. Faults
// come as cleave::Error. Objects are handles: copies are cheap and share one immutable thing. Everything but a
// GraphBuilder may be used from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#if defined(_WIN32)
#define CLEAVE_API
#else
#define CLEAVE_API __attribute__((visibility("default")))
#endif

namespace cleave {

CLEAVE_API const char* library_version();  // "0.1.0"

// Why something did not work.
class CLEAVE_API Error : public std::runtime_error {
 public:
  enum class Kind {
    invalid,       // the text, the model, a shape, a buffer or an option is wrong
    unsupported,   // an operator, a type or a target that this version lacks
    wrong_result,  // a kernel or a certificate did not pass its verification
    toolchain,     // the compiler, the device or the object code
    interrupted,
    internal,  // a fault of ours
  };
  // `message` is the whole text, with notes and hint, as the command would print it.
  Error(Kind kind, std::string code, std::string node, std::string hint, const std::string& message);
  ~Error() override;

  Kind kind() const { return kind_; }
  const std::string& code() const { return code_; }  // "CLV3012"; empty for internal faults
  const std::string& node() const { return node_; }  // the operator, tensor or option that is meant; may be empty
  const std::string& hint() const { return hint_; }  // what to try; may be empty

 private:
  Kind kind_;
  std::string code_, node_, hint_;
};

// ---- data -----------------------------------------------------------------------------------------------------------

enum class ElementType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u32, u16, u8, boolean };
CLEAVE_API const char* name(ElementType type);                              // "f32", ..., "bool"
CLEAVE_API std::optional<ElementType> element_type(std::string_view name);  // the reverse
CLEAVE_API int64_t size_of(ElementType type);                               // bytes of an element

// Memory of the caller. Element (i, j, ..) lies at data + (i * strides[0] + j * strides[1] + ..) elements; strides may
// have any sign. Without strides the tensor is dense in row-major order.
struct View {
  void* data = nullptr;
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// A view that keeps its memory alive.
struct Tensor : View {
  std::shared_ptr<void> storage;

  template <class T>
  T* as() {
    return static_cast<T*>(data);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  CLEAVE_API int64_t elements() const;
};
CLEAVE_API Tensor zeros(ElementType type, std::vector<int64_t> shape);  // dense, 64-byte aligned
CLEAVE_API Tensor load_npy(const std::string& path);
CLEAVE_API void save_npy(const std::string& path, const View& tensor);

// An extent: a number, or an expression of dimensions: "S", "S + 1", "S // 2", "min(S, 4096)".
class Extent {
 public:
  Extent(int64_t value) : value_(value) {}
  Extent(int value) : value_(value) {}
  Extent(std::string text) : text_(std::move(text)) {}
  Extent(const char* text) : text_(text) {}
  bool is_number() const { return text_.empty(); }
  int64_t number() const { return value_; }
  const std::string& text() const { return text_; }

 private:
  int64_t value_ = 0;
  std::string text_;
};

// An input, an output or a run-time scalar of a graph or a program.
struct Argument {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<Extent> shape;
};

// ---- graphs ---------------------------------------------------------------------------------------------------------

struct LoadOptions {
  // Of ONNX models: the lowest and the highest extent of a symbolic dimension.
  std::map<std::string, std::pair<int64_t, int64_t>> ranges;
  // Of ONNX models: inputs with contents that are known now, as dense tensors (they stay inputs, but the graph may be
  // made for these contents: the extents a Reshape reads, for example).
  std::map<std::string, Tensor> known;
  // Compute with them everywhere, as if they were constants: for models that compute shapes from inputs.
  bool fold_known = false;
};

class CLEAVE_API Graph {
 public:
  // A .graph text or an .onnx model.
  static Graph load(const std::string& path, const LoadOptions& options = {});
  // The graph language (docs/graph.md). `folder` is where file("...") constants lie; empty: there are none.
  static Graph parse(const std::string& text, const std::string& name = "graph", const std::string& folder = "");
  // The bytes of an ONNX model. `folder` holds its external data; empty: it has none.
  static Graph from_onnx(std::string_view model, const std::string& name = "model", const std::string& folder = "",
                         const LoadOptions& options = {});

  std::string name() const;
  // Graph::parse reads it again, where no constant has more than 64 elements: larger ones are named, not written.
  std::string text() const;
  // The text as a file (NAME.graph) that Graph::load reads again, with its larger constants beside it in
  // NAME.constants. Folders are made.
  void save(const std::string& path) const;
  std::vector<Argument> inputs() const;
  std::vector<Argument> scalars() const;
  std::vector<Argument> outputs() const;
  // The dimensions without a value: name, lowest and highest extent.
  struct Dim {
    std::string name;
    int64_t low, high;
  };
  std::vector<Dim> dims() const;

  struct Impl;
  explicit Graph(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& shared() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// A value of a graph that is being built; only of use with its builder.
struct Value {
  uint32_t id = 0;
};

using Attribute =
    std::variant<int64_t, double, bool, std::string, ElementType, std::vector<int64_t>, std::vector<Extent>>;
using AttributeMap = std::map<std::string, Attribute>;

// Builds a graph operator by operator; each is checked as it is added. Not thread-safe.
class CLEAVE_API GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name = "graph");
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  // A dimension that gets its value later. Names of undeclared dimensions in an input's shape are declared by it.
  void dim(const std::string& name, int64_t low = 0, int64_t high = int64_t{1} << 31);
  Value input(const std::string& name, ElementType type, const std::vector<Extent>& shape);
  Value constant(const std::string& name, const View& content);  // copies
  Value scalar(const std::string& name, ElementType type);       // a run-time number
  Value literal(double value, ElementType type);

  // Any operator of the graph language, by its name there (`cleave show --operators` lists them). The result of the
  // first form is the only one; the second form gives all.
  Value add(const std::string& op, const std::vector<Value>& operands, const AttributeMap& attributes = {});
  std::vector<Value> add_all(const std::string& op, const std::vector<Value>& operands,
                             const AttributeMap& attributes = {});

  ElementType type(Value value) const;
  std::vector<Extent> shape(Value value) const;
  void output(const std::string& name, Value value);
  Graph build();  // leaves the builder empty

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- programs -------------------------------------------------------------------------------------------------------

// A few threads that runs may share. One run at a time has them; others then run on their calling thread alone.
class CLEAVE_API Threads {
 public:
  explicit Threads(int count = 0);  // 0: all that this process may use
  int count() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

struct CompileOptions {
  std::map<std::string, int64_t> dims;     // dimensions to fix now; the others follow from the inputs of each run
  std::map<std::string, int64_t> typical;  // what those are expected to be: speed is chosen for these values
  std::map<std::string, std::pair<int64_t, int64_t>>
      ranges;          // narrower ones than the graph has, of those that stay open
  int threads = 1;     // that the schedule is made for
  bool search = true;  // look for equal graphs that are cheaper
  // Of measurements of this machine and of programs that were compiled: what is asked for again is loaded. Not given:
  // the command's; empty: nothing is kept.
  std::optional<std::string> cache_directory;
  std::function<bool()> interrupted;  // asked now and then; true ends the compilation with an Error
};

// Compiled code. Thread-safe; runs of one program may overlap.
class CLEAVE_API Program {
 public:
  // An artefact folder that `cleave optimize -o` or Optimized::save wrote.
  static Program load(const std::string& folder);
  // The schedule that the cost model prefers: nothing is measured. Dimensions that are left open get their values from
  // the inputs of each run; one compilation serves them all. It happens now if their typical values are given, else at
  // the first run, whose values are the typical ones then.
  static Program compile(const Graph& graph, const CompileOptions& options = {});

  std::vector<Argument> inputs() const;
  std::vector<Argument> scalars() const;
  std::vector<Argument> outputs() const;
  std::vector<std::string> dims() const;  // those that are open
  // `dims` gives values to dimensions that do not follow from the shapes of inputs, here and in run(): the longest
  // request of a ragged batch, say.
  std::vector<std::vector<int64_t>> output_shapes(const std::vector<std::vector<int64_t>>& input_shapes,
                                                  const std::map<std::string, int64_t>& dims = {}) const;
  size_t compilations() const;  // 2 once calls needed the unfused schedule too (extents of 0, ends of a range), else 1

  // Zero-copy: memory that is not dense is copied, and so are outputs that overlap other arguments.
  void run(std::span<const View> inputs, std::span<const View> outputs, std::span<const double> scalars = {},
           const Threads* threads = nullptr, const std::map<std::string, int64_t>& dims = {}) const;
  // Into new memory.
  std::vector<Tensor> run(std::span<const View> inputs, std::span<const double> scalars = {},
                          const Threads* threads = nullptr, const std::map<std::string, int64_t>& dims = {}) const;
  std::vector<Tensor> run(std::initializer_list<Tensor> inputs) const;

  struct Impl;
  explicit Program(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

struct Progress {
  size_t tried = 0, candidates = 0;
  double best_speedup = 1, seconds = 0, budget_seconds = 0;
  bool new_best = false;
};

struct OptimizeOptions {
  std::map<std::string, std::string> dims;  // name -> "4096", or "1..8192@4096": a range, and what to tune for
  std::string target = "cpu";
  std::string budget = "60s";  // "60s", "5m", "500c" (candidates), "none"
  int threads = 1;
  uint64_t seed = 1;
  bool deterministic = false;                  // take the cost model's choice: verified, not timed
  size_t top = 8;                              // candidates kept of each graph
  double rtol = 0, atol = 0;                   // accept more than the derived error bound
  std::vector<std::string> disabled;           // passes to leave out
  std::optional<std::string> cache_directory;  // of measurements of this machine; not given: the command's
  std::string command;                         // what the manifest says about how this was called
  std::function<bool()> interrupted;           // asked often; true keeps the best so far and ends
  std::function<void(const Progress&)> progress;
  std::function<void(const std::string&)> log;
};

// What optimize() found. Always a verified program: where nothing was faster, the graph as it was given.
class CLEAVE_API Optimized {
 public:
  Program program() const;
  double speedup() const;                // over the unfused schedule; 1 when that was kept, or nothing was timed
  std::string status() const;            // "complete", "budget", "interrupted"
  std::string text() const;              // the table of the command
  std::string json() const;              // schema cleave.result/1
  std::string path_json() const;         // the steps from the given graph to the chosen one
  std::string candidates_jsonl() const;  // each candidate with its verdict and time
  std::string certificate() const;       // that the chosen graph equals the given one; empty when it is the given one
  // A stage as text: "graph", "stabilised", "itgraph", "tile", "leir", "vec", "llvm", "asm".
  std::string source(const std::string& stage) const;
  std::string report() const;  // one HTML page about all of it, without network
  std::vector<std::string> notes() const;
  double coverage() const;                     // the share of the arithmetic that the algebra could work on, 0 to 1
  void save(const std::string& folder) const;  // as an artefact folder

  struct Impl;
  explicit Optimized(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

CLEAVE_API Optimized optimize(const Graph& graph, const OptimizeOptions& options = {});

}  // namespace cleave
