// Man pages and completions of a program made up here; scripts/test_package shows ours to man and to the shells.

#include "services/command_line/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace moestro::command_line {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// "tool": --verbose, --secret (hidden); "tool bake": FILE, -o, --mode; "tool bake twice": -n; "tool hidden" (hidden).
class Tool {
 public:
  Tool() {
    app.add_flag("-v,--verbose", verbose, "say more; it's a lot");
    app.add_option("--secret", text, "for tests")->group("");
    App* bake = app.add_subcommand("bake", "Bake a file");
    bake->add_option("file", text, ".dotted \\path `quoted`")->required();
    bake->add_option("-o,--output", text, "where to; [default]")->default_str("out");
    bake->add_option("--mode", text, "how")->check(IsMember({"fast", "slow"}));
    bake->add_option("--label", labels, "what it is");
    bake->footer("Example:\n  tool bake x");
    App* twice = bake->add_subcommand("twice", "Bake it twice");
    twice->add_option("-n", count, "how often");
    app.add_subcommand("hidden", "not shown")->group("");
  }

  App app{"Bakes files.", "tool"};
  bool verbose = false;
  std::string text;
  std::vector<std::string> labels;
  int64_t count = 0;
};

TEST(Manual, InfoHasWhatTheHelpShows) {
  const Tool tool;
  const CommandInfo info = tool.app.info();
  ASSERT_EQ(info.commands.size(), 1u);
  const CommandInfo& bake = info.commands.front();
  EXPECT_EQ(bake.name, "tool bake");
  EXPECT_EQ(bake.commands.front().name, "tool bake twice");
  ASSERT_EQ(bake.options.size(), 5u);  // with --help
  EXPECT_TRUE(bake.options[1].positional && bake.options[1].required);
  EXPECT_THAT(bake.options[2].names, ElementsAre("-o", "--output"));
  EXPECT_EQ(bake.options[2].value, "TEXT");
  EXPECT_EQ(bake.options[2].preset, "out");
  EXPECT_THAT(bake.options[3].choices, ElementsAre("fast", "slow"));
  EXPECT_EQ(info.options[1].value, "") << "a flag";
  for (const OptionInfo& option : info.options) EXPECT_THAT(option.names, Not(testing::Contains("--secret")));
}

TEST(Manual, APageEscapesWhatTroffWouldTakeForItsOwn) {
  const Tool tool;
  const std::string page = manual(tool.app.info(), "man");
  EXPECT_THAT(page, HasSubstr(".SH NAME\ntool \\- Bakes files.\n"));
  EXPECT_THAT(page, HasSubstr("\n\\&.dotted \\(rspath \\(gaquoted\\(ga\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fITEXT\\fR\nwhere to; [default] [default: out]\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-mode\\fR \\fIfast|\\:slow\\fR\n"));
  EXPECT_THAT(page, HasSubstr(".SS \"tool bake twice\"\n"));
  EXPECT_THAT(page, HasSubstr("\n.nf\nExample:\n  tool bake x\n.fi\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
  EXPECT_THAT(page, Not(HasSubstr("hidden")));
}

/// What bash offers for the last of `words`.
std::string completed(const std::string& words, int last) {
  const Tool tool;
  const std::string script = testing::TempDir() + "tool.bash", answer = testing::TempDir() + "tool.answer";
  std::ofstream(script) << manual(tool.app.info(), "bash") << "COMP_WORDS=(" << words << ") COMP_CWORD=" << last
                        << "\n_tool\necho \"${COMPREPLY[*]}\"\n";
  EXPECT_EQ(std::system(("bash -u " + script + " >" + answer).c_str()), 0);
  std::string line;
  std::ifstream in(answer);
  std::getline(in, line);
  return line;
}

TEST(Manual, BashCompletesCommandsOptionsAndValues) {
  EXPECT_EQ(completed("tool ''", 1), "bake");
  EXPECT_EQ(completed("tool --v", 1), "--verbose");
  EXPECT_EQ(completed("tool --s", 1), "") << "hidden";
  EXPECT_EQ(completed("tool bake t", 2), "twice");
  EXPECT_EQ(completed("tool --verbose bake --o", 3), "--output");
  EXPECT_EQ(completed("tool bake --mode s", 3), "slow");
  EXPECT_EQ(completed("tool bake --mode = ''", 4), "fast slow") << "bash takes --mode= apart";
  EXPECT_EQ(completed("tool bake --mode = s", 4), "slow");
  EXPECT_EQ(completed("tool bake --mode =", 3), "fast slow");
  EXPECT_EQ(completed("tool bake -o t", 3), "") << "a value: files are the shell's business";
  EXPECT_EQ(completed("tool bake twice -", 3), "-h --help -n");
}

TEST(Manual, ZshAndFishGetQuotedHelps) {
  const Tool tool;
  const std::string zsh = manual(tool.app.info(), "zsh");
  EXPECT_THAT(zsh, testing::StartsWith("#compdef tool\n"));
  EXPECT_THAT(zsh, HasSubstr("'--verbose[say more]'\n"));
  EXPECT_THAT(zsh, HasSubstr("'--mode=[how]:value:(fast slow)'\n"));
  EXPECT_THAT(zsh, HasSubstr("'-o[where to]:value:_files'\n"));
  EXPECT_THAT(zsh, HasSubstr("'--output=[where to]:value:_files'\n"));
  EXPECT_THAT(zsh, HasSubstr("'*--label=[what it is]:value:_files'\n")) << "it may be given again";
  EXPECT_THAT(zsh, HasSubstr("'bake:Bake a file'\n"));
  const std::string fish = manual(tool.app.info(), "fish");
  const std::string at = "complete -c tool -n \"test (__tool_command) = 'tool";
  EXPECT_THAT(fish, HasSubstr(at + " bake'\" -l mode -x -a 'fast slow' -d 'how'\n"));
  EXPECT_THAT(fish, HasSubstr(at + "'\" -f -a bake -d 'Bake a file'\n"));
  EXPECT_THAT(fish, HasSubstr("case 'tool bake' 'tool bake twice'\n"));
}

TEST(Manual, ALineAsksForItByAnOptionThatNoHelpShows) {
  Tool tool;
  EXPECT_THAT(tool.app.help(), Not(HasSubstr("describe")));
  const char* const line[] = {"tool", "--describe-as", "fish"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(parse_program_line(tool.app, 3, line), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), manual(tool.app.info(), "fish"));
  Tool other;
  const char* const wrong[] = {"tool", "--describe-as", "csh"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse_program_line(other.app, 3, wrong), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("tool: --describe-as: csh not in"));
}

}  // namespace
}  // namespace moestro::command_line
