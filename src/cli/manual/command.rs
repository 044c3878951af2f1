//! Builds the page of one command from the definitions of its arguments, with the sections in the
//! order of man(7).

use clap::Command;

use super::page::Page;
use super::roff::Roff;
use crate::failure::{FAILED, NOT_THE_PROGRAM, USAGE};
use crate::launch::limits::NOT_KEPT;
use crate::launch::program::{NOT_EXECUTABLE, NOT_FOUND};

const ROOT: &str = "cachealloc";
const RUN: &str = "run";

pub(super) fn page(command: &Command) -> Page {
    let own = command.get_name();
    let is_root = own == ROOT;
    let name = if is_root { ROOT.to_string() } else { format!("{ROOT}-{own}") };
    let mut page = Roff::new(&name, 1);
    let man = clap_mangen::Man::new(command.clone());
    page.section("NAME");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.name_line(&name, &about);
    page.section("SYNOPSIS");
    page.paragraph(&synopsis(command));
    page.section("DESCRIPTION");
    let long = command.get_long_about().or(command.get_about());
    let long = long.map(ToString::to_string).unwrap_or_default();
    long.split("\n\n").for_each(|paragraph| page.paragraph(paragraph));
    page.made(&made(|out| man.render_options_section(out)));
    if is_root {
        page.section("COMMANDS");
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            page.item(&format!("{ROOT}-{}(1)", command.get_name()), &about);
        }
    }
    page.section("EXIT STATUS");
    for (code, meaning) in exit_codes(own) {
        page.item(&code, meaning);
    }
    if let Some(examples) = command.get_after_help() {
        page.section("EXAMPLES");
        let examples = examples.to_string();
        page.lines(examples.strip_prefix("Examples:\n").unwrap_or(&examples));
    }
    page.section("SEE ALSO");
    let others = if is_root { format!("{ROOT}(7)") } else { format!("{ROOT}(1), {ROOT}(7)") };
    page.paragraph(&others);
    Page { name, section: 1, text: page.finish() }
}

/// Returns the usage line with its values: `cachealloc report [OPTIONS] <FILE>...`.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").trim().to_string()
}

/// Returns a section that clap_mangen renders, without the macros that begin its pages.
fn made(render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    let _ = render(&mut text); // writing to memory does not fail
    // Replaces the apostrophe, which those macros define.
    let text = String::from_utf8_lossy(&text).replace("\\*(Aq", "\\(aq");
    text.find(".SH").map_or(String::new(), |begin| text[begin..].to_string())
}

/// Returns the exit codes and their meanings. The codes come from their constants.
fn exit_codes(command: &str) -> Vec<(String, &'static str)> {
    let codes: &[(u8, &str)] = match command {
        RUN => &[
            (USAGE, "Invalid usage or setting; the program was not started."),
            (NOT_KEPT, "The program succeeded, but exceeded --max-peak or --max-leak."),
            (NOT_THE_PROGRAM, "The library was not found, or cannot be loaded into the program."),
            (NOT_EXECUTABLE, "The program cannot be executed."),
            (NOT_FOUND, "The program was not found."),
        ],
        "doctor" => &[
            (0, "No problems found."),
            (FAILED, "Some problems are marked NO."),
            (USAGE, "Invalid usage."),
        ],
        _ => &[
            (0, "Success."),
            (FAILED, "Failure; a line on stderr states the reason and the next step."),
            (USAGE, "Invalid usage."),
        ],
    };
    let mut all: Vec<_> = codes.iter().map(|(code, text)| (code.to_string(), *text)).collect();
    if command == RUN {
        all.push(("otherwise".to_string(), "The exit code of the program, or its signal."));
    }
    all
}
