//! The manual pages: one of section 1 for each command, built from the definitions of its
//! arguments, and one of section 7 about what all commands share.

mod command;
mod overview;
mod page;
mod roff;

use clap::Command;

use page::Page;

/// Returns all pages, starting with that of the command itself.
pub(crate) fn pages(root: Command) -> Vec<Page> {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    let mut pages = vec![command::page(&root)];
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    pages.extend(shown.map(command::page));
    pages.push(overview::page());
    pages
}
