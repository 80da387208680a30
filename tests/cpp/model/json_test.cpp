// SPDX-License-Identifier: MIT
#include "tessera/model/json.hpp"

#include <gtest/gtest.h>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

TEST(Json, reads_every_kind_of_value)
{
  const auto json = parse_json(R"( {"a": [1, -2.5e3, true, false, null], "b": {"c": "d"}, "e": {}, "f": []} )");
  const auto& object = std::get<Json::Object>(json.value);
  const auto& array = std::get<Json::Array>(object.at("a").value);
  ASSERT_EQ(array.size(), 5U);
  EXPECT_EQ(std::get<double>(array[0].value), 1.0);
  EXPECT_EQ(std::get<double>(array[1].value), -2500.0);
  EXPECT_TRUE(std::get<bool>(array[2].value));
  EXPECT_FALSE(std::get<bool>(array[3].value));
  EXPECT_STREQ(array[4].kind(), "null");
  EXPECT_EQ(std::get<std::string>(std::get<Json::Object>(object.at("b").value).at("c").value), "d");
  EXPECT_TRUE(std::get<Json::Object>(object.at("e").value).empty());
  EXPECT_TRUE(std::get<Json::Array>(object.at("f").value).empty());
}

TEST(Json, reads_escapes_as_utf8)
{
  const auto json = parse_json(R"("\"\\\/\b\f\n\r\t \u0041\u00c5\u20ac\ud83e\uddea")");
  EXPECT_EQ(std::get<std::string>(json.value), "\"\\/\b\f\n\r\t A\u00c5\u20ac\U0001f9ea");
}

TEST(Json, refuses_what_is_not_json)
{
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "{a: 1}", "'a'", "+1", "nan", "inf", "tru", "1 2", "\"\\u12g4\"",
                           "\"\\ud83e\"", "\"\\uddea\"", "\"a", "\"\n\"", "{\"a\": 1, \"a\": 2}"}) {
    EXPECT_THROW((void)parse_json(text), Error) << text;
  }
}

}  // namespace
}  // namespace tessera
