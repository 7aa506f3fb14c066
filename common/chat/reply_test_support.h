#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/chat/reply_parser.h"

namespace common::chat {

using TestFormat = ReplyReading;

/// Adds up deltas as a client does.
inline void add(Reply& sum, const std::vector<ReplyDelta>& deltas) {
  for (const ReplyDelta& delta : deltas) {
    switch (delta.kind) {
      case ReplyDelta::Kind::reasoning:
        sum.reasoning += delta.text;
        break;
      case ReplyDelta::Kind::content:
        sum.content += delta.text;
        break;
      case ReplyDelta::Kind::call_begin:
        EXPECT_EQ(delta.index, static_cast<int>(sum.calls.size()));
        EXPECT_FALSE(delta.id.empty());
        EXPECT_FALSE(delta.name.empty());
        sum.calls.push_back({delta.id, delta.name, delta.text});
        break;
      case ReplyDelta::Kind::call_arguments:
        ASSERT_EQ(delta.index, static_cast<int>(sum.calls.size()) - 1);
        EXPECT_FALSE(delta.text.empty());
        sum.calls.back().arguments += delta.text;
        break;
    }
  }
}

/// The sum of the deltas, which must be the parser's reply.
inline Reply parse_in_pieces(const TestFormat& f, const std::vector<std::string>& pieces) {
  ReplyParser parser(f);
  Reply sum;
  for (const std::string& piece : pieces) add(sum, parser.push(piece));
  add(sum, parser.finish());
  const Reply& reply = parser.reply();
  EXPECT_EQ(sum.content, reply.content);
  EXPECT_EQ(sum.reasoning, reply.reasoning);
  EXPECT_EQ(sum.calls.size(), reply.calls.size());
  for (std::size_t i = 0; i < std::min(sum.calls.size(), reply.calls.size()); ++i) {
    EXPECT_EQ(sum.calls[i].id, reply.calls[i].id);
    EXPECT_EQ(sum.calls[i].name, reply.calls[i].name);
    EXPECT_EQ(sum.calls[i].arguments, reply.calls[i].arguments);
  }
  return sum;
}

inline void expect_equal(const Reply& a, const Reply& b) {
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.reasoning, b.reasoning);
  ASSERT_EQ(a.calls.size(), b.calls.size());
  for (std::size_t i = 0; i < a.calls.size(); ++i) {
    EXPECT_EQ(a.calls[i].name, b.calls[i].name);
    EXPECT_EQ(a.calls[i].arguments, b.calls[i].arguments);
  }
}

/// Cut at every byte, into single bytes, and into pieces of each small size.
inline void expect_same_wherever_cut(const TestFormat& f, const std::string& text) {
  const Reply whole = parse_in_pieces(f, {text});
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut));
    expect_equal(parse_in_pieces(f, {text.substr(0, cut), text.substr(cut)}), whole);
    if (::testing::Test::HasFailure()) return;
  }
  for (std::size_t size = 1; size <= 7; ++size) {
    SCOPED_TRACE("pieces of " + std::to_string(size));
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
    expect_equal(parse_in_pieces(f, pieces), whole);
  }
}

}  // namespace common::chat
