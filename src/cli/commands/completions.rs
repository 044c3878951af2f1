//! `cachealloc completions`: scripts that let a shell complete the command line.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};

use super::Result;

/// Print the completion script for a shell.
#[derive(Args)]
#[command(after_help = "\
bash:  source <(cachealloc completions bash)
zsh:   cachealloc completions zsh >\"${fpath[1]}/_cachealloc\"
fish:  cachealloc completions fish >~/.config/fish/completions/cachealloc.fish")]
pub(crate) struct Arguments {
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(arguments: Arguments) -> Result {
    let shell = match arguments.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    let mut command = crate::arguments::Arguments::command();
    clap_complete::generate(shell, &mut command, "cachealloc", &mut text);
    super::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
