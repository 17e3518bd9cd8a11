// Text of expressions (tile/expression.hpp), shared by the text forms of tile programs and itGraphs:
//
//   node  := "%" INT | NUM ":" dtype | "index" "(" expr ")" | "cast" "(" node "," dtype ")" | FN "(" node {"," node}
//   ")"
//          | tensor "[" [index {"," index}] "]" ["if" "(" node ")"]
//   index := expr | [expr] "@" node          expr: sym/text.hpp          tensor := NAME | STRING
//
// A node that is used more than once is named before its first use, "%0 = node".
#pragma once

#include <map>

#include "base/lexer.hpp"
#include "tile/expression.hpp"

namespace cleave::tile {

// A name as it is printed: in quotes unless it is a plain identifier. `expect_name` reads both.
std::string print_name(const std::string& name);
std::optional<std::string> expect_name(TokenCursor& cursor, std::string_view what);

std::string print_list(const sym::Pool& syms, std::span<const Expr> list);  // "[a, b]"

class ExpressionPrinter {
 public:
  using TensorName = std::function<const std::string&(BufferId)>;
  // Only what the roots need is printed.
  ExpressionPrinter(const sym::Pool& syms, std::span<const Node> nodes, std::span<const NodeId> roots,
                    TensorName name_of);

  // The lines "%i = node", in order.
  const std::vector<std::string>& definitions() const { return definitions_; }
  std::string show(NodeId id) const;

 private:
  std::string expression(const Node& node) const;

  const sym::Pool& syms_;
  std::span<const Node> nodes_;
  TensorName name_of_;
  std::vector<std::string> names_;
  std::vector<std::string> definitions_;
};

// The nodes of one nest or Compute while it is read.
struct ExpressionScope {
  std::vector<Node> nodes;
  std::map<int64_t, NodeId> names;
};

// Reads expressions at a cursor. On failure the cursor holds the diagnostic and nullopt or false is returned.
class ExpressionParser {
 public:
  using FindSymbol = std::function<std::optional<Expr>(const std::string&)>;
  using FindTensor = std::function<std::optional<std::pair<BufferId, DType>>(const std::string&)>;
  ExpressionParser(TokenCursor& cursor, sym::Pool& syms, FindSymbol find_symbol, FindTensor find_tensor)
      : c_(cursor), syms_(syms), find_symbol_(std::move(find_symbol)), find_tensor_(std::move(find_tensor)) {}

  std::optional<Expr> expr();
  bool list(std::vector<Expr>& out);  // "[" [expr {"," expr}] "]"
  std::optional<DType> dtype();
  std::optional<std::pair<BufferId, DType>> tensor();
  std::optional<NodeId> node(ExpressionScope& scope);
  bool definitions(ExpressionScope& scope);  // { "%" INT "=" node }

 private:
  std::optional<NodeId> node_body(ExpressionScope& scope);
  std::optional<NodeId> load(ExpressionScope& scope);
  std::optional<NodeId> call(ExpressionScope& scope);
  static NodeId add(ExpressionScope& scope, Node node);

  TokenCursor& c_;
  sym::Pool& syms_;
  FindSymbol find_symbol_;
  FindTensor find_tensor_;
};

}  // namespace cleave::tile
