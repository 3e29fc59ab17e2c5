// --help, --help-all, and what a mistyped line is answered with, of a program made up here.

#include "services/command_line/help_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace moestro::command_line {
namespace {

using testing::HasSubstr;
using testing::Not;

/// "oven": --heat; "oven bake": FILE..., -o, --mode, --rack (advanced), --fuse (advanced, for tests), --door, --secret
/// (hidden); "oven clean".
class Oven {
 public:
  Oven() {
    app.require_subcommand(1);
    App* bake = app.add_subcommand("bake", "Bake files");
    clean = app.add_subcommand("clean", "Clean it");
    clean->add_flag("--acid", flag, "With acid");
    app.group_commands({"bake"}, "Use it");
    app.add_option("--heat", number, "Degrees")->capture_default_str();
    bake->add_option("file", files, "What to bake")->required();
    bake->add_option("-o,--output", text, "Where to put it")->required()->type_name("DIR")->group("Places");
    bake->add_option("--mode", text, std::string(20, 'x') + " " + std::string(20, 'y') + " " + std::string(20, 'z'))
        ->choices({"fast", "slow"})
        ->default_str("fast");
    rack = bake->add_option("--rack", number, "Which rack")->group("Places")->advanced();
    bake->add_flag("--fuse", flag, "Blow the fuse")->group("For tests")->advanced();
    bake->add_flag("--door", flag, "Leave it open")->needs(rack);
    bake->add_option("--secret", text, "Hidden")->group("");
    bake->footer("Example:\n  oven bake x");
  }

  std::string refused(const std::string& line) { return app.parse(line).refused; }

  App app{"Bakes files.", "oven"};
  int64_t number = 180;
  bool flag = false;
  std::string text;
  std::vector<std::string> files;
  Option* rack = nullptr;
  App* clean = nullptr;
};

TEST(HelpPage, HasGroupsDefaultsAndTheAdvancedOptionsOnlyWhenAsked) {
  EXPECT_EQ(Oven().app.parse("bake --help").print,
            "Usage: oven bake [OPTION...] file...\n"
            "\n"
            "Bake files\n"
            "\n"
            "Arguments:\n"
            "  file ...                What to bake\n"
            "\n"
            "Places:\n"
            "  -o, --output DIR        Where to put it [required]\n"
            "\n"
            "Options:\n"
            "  --mode fast|slow        xxxxxxxxxxxxxxxxxxxx yyyyyyyyyyyyyyyyyyyy\n"
            "                          zzzzzzzzzzzzzzzzzzzz [default: fast]\n"
            "  --door                  Leave it open [only with --rack]\n"
            "  -h, --help              Print this help\n"
            "  --help-all              Print every option\n"
            "\n"
            "2 more options: oven bake --help-all\n"
            "\n"
            "Example:\n"
            "  oven bake x\n");
  const std::string all = Oven().app.parse("bake --help-all").print;
  EXPECT_THAT(all, HasSubstr("\n  --rack N                Which rack\n"));
  EXPECT_THAT(all, HasSubstr("\nFor tests:\n  --fuse                  Blow the fuse\n"));
  EXPECT_THAT(all, Not(HasSubstr("more options")));
  EXPECT_THAT(all, Not(HasSubstr("--secret")));
}

TEST(HelpPage, ListsCommandsUnderTheirHeadings) {
  const std::string page = Oven().app.parse("--help").print;
  EXPECT_THAT(page, HasSubstr("Usage: oven [OPTION...] COMMAND\n"));
  EXPECT_THAT(page, HasSubstr("\nUse it:\n  bake                    Bake files\n"));
  EXPECT_THAT(page, HasSubstr("\nCommands:\n  clean                   Clean it\n"));
  EXPECT_THAT(page, HasSubstr("  --heat N                Degrees [default: 180]\n"));
  EXPECT_THAT(page, Not(HasSubstr("--help-all"))) << "it would show no more";
}

TEST(HelpPage, ListsHaveTheirDefaultsAsTheyAreTyped) {
  App app{"", "oven"};
  std::vector<int64_t> one = {512}, two = {1, 2};
  app.add_option("--heat", one, "Degrees")->capture_default_str();
  app.add_option("--racks", two, "Racks")->capture_default_str()->delimiter(',');
  const std::string page = app.parse("--help").print;
  EXPECT_THAT(page, HasSubstr("Degrees [default: 512]\n"));
  EXPECT_THAT(page, HasSubstr("Racks [default: 1,2]\n"));
}

TEST(HelpPage, ManualsHaveTheAdvancedOptionsToo) {
  const std::vector<OptionInfo> options = Oven().app.info().commands.front().options;
  const auto rack = std::ranges::find_if(options, [](const OptionInfo& o) { return o.names.front() == "--rack"; });
  ASSERT_NE(rack, options.end());
  EXPECT_TRUE(rack->advanced);
}

TEST(HelpPage, NoLineIsLongerThan80Columns) {
  App app{"", "long"};
  std::string help;
  for (int i = 0; i < 100; ++i) help += "word" + std::to_string(i) + " ";
  bool flag = false;
  app.add_flag("--a-name-that-is-far-too-long-for-its-column", flag, help);
  std::istringstream lines(app.help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(app.help(), HasSubstr("word99"));
}

TEST(Refusals, NameTheNearestOptionOrCommand) {
  EXPECT_EQ(Oven().refused("bake x --outptu y"), "unknown option '--outptu'; did you mean '--output'?");
  EXPECT_EQ(Oven().refused("bake x -o y --mod=fast"), "unknown option '--mod'; did you mean '--mode'?");
  EXPECT_EQ(Oven().refused("bake x -o y --frobnicate"), "unknown option '--frobnicate'");
  EXPECT_EQ(Oven().refused("bake x -o y --secre z"), "unknown option '--secre'") << "it is hidden";
  EXPECT_EQ(Oven().refused("baek x"), "unknown command 'baek'; did you mean 'bake'?");
  EXPECT_EQ(Oven().refused("fry x"), "unknown command 'fry'");
  EXPECT_EQ(Oven().refused("clean x"), "unexpected argument 'x'");
  EXPECT_EQ(Oven().refused("--acid clean"), "write --acid after 'clean'");
  EXPECT_EQ(Oven().refused("bake x"), "--output is required") << "nothing is mistyped";
  EXPECT_EQ(Oven().refused("bake -o y"), "file is required");
  EXPECT_EQ(Oven().refused(""), "a command is required: bake, clean");
  EXPECT_EQ(Oven().refused("help"), "unknown command 'help'; did you mean '--help'?");
  Oven strays;
  strays.clean->strays_are_for("--acid");
  EXPECT_EQ(strays.refused("clean x"), "unexpected argument 'x'; did you mean --acid x?");
}

}  // namespace
}  // namespace moestro::command_line
