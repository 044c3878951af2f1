//! `cachealloc completions`: scripts that let a shell complete the command line, and processes
//! where one is asked for.

use std::process::ExitCode;

use clap::{Args, Command, CommandFactory, ValueEnum};

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
    let of_processes = of_processes(&command);
    clap_complete::generate(shell, &mut command, "cachealloc", &mut text);
    let text = String::from_utf8_lossy(&text);
    super::print(&match arguments.shell {
        Shell::Bash => bash(&text, &of_processes),
        Shell::Zsh => zsh(&text),
        Shell::Fish => fish(&text, &of_processes),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the names of the subcommands that take a running process.
fn of_processes(command: &Command) -> Vec<String> {
    let takes_process = |command: &&Command| command.get_positionals().any(is_process);
    let all = command.get_subcommands().filter(takes_process);
    all.map(|it| it.get_name().to_string()).filter(|name| name != OF_KILLED).collect()
}

fn is_process(argument: &clap::Arg) -> bool {
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().any(|name| name.split('|').any(|word| word == "PID"))
}

/// Prints the processes that `cachealloc top` lists. A quote within a text would be escaped, and a
/// table would wait for its rates.
const PIDS: &str = "cachealloc top --json 2>/dev/null | grep -o '\"process\":[0-9]*' | cut -d: -f2";

/// Prints the killed processes that have left a history.
const KILLED: &str = "cachealloc recover 2>/dev/null | awk '{ print $1 }'";
/// The subcommand that takes a killed process.
const OF_KILLED: &str = "recover";

fn bash(text: &str, of_processes: &[String]) -> String {
    let text = text.replace("complete -F _cachealloc ", "complete -F _cachealloc_or_process ");
    let names = of_processes.join("|");
    format!(
        "{text}
_cachealloc_or_process() {{
    _cachealloc \"$@\"
    local word=\"${{COMP_WORDS[COMP_CWORD]}}\" pids=
    if (( COMP_CWORD > 1 )) && [[ $word != -* ]]; then
        case \"${{COMP_WORDS[1]}}\" in
            {names}) pids=$({PIDS}) ;;
            {OF_KILLED}) pids=$({KILLED}) ;;
        esac
        COMPREPLY+=( $(compgen -W \"$pids\" -- \"$word\") )
    fi
}}
"
    )
}

fn zsh(text: &str) -> String {
    let with_processes = |line: &str| {
        let is_process = line.starts_with('\'') && line.contains("rocess under the library")
            || line.starts_with("'::process ");
        match is_process {
            true => line.replace(":_default'", ":_cachealloc_process'"),
            false if line.starts_with("'::left ") => {
                line.replace(":_files'", ":_cachealloc_killed'")
            }
            false => line.to_string(),
        }
    };
    let lines: Vec<String> = text.lines().map(with_processes).collect();
    let end = "if [ \"$funcstack[1]\" = \"_cachealloc\" ]";
    let function = format!(
        "_cachealloc_process() {{
    _alternative \"processes:process:($({PIDS}))\" 'files:file:_files'
}}
_cachealloc_killed() {{
    _alternative \"processes:process:($({KILLED}))\" 'files:file:_files'
}}

{end}"
    );
    lines.join("\n").replace(end, &function) + "\n"
}

fn fish(text: &str, of_processes: &[String]) -> String {
    let names = of_processes.join(" ");
    format!(
        "{text}
function __cachealloc_processes
    {PIDS}
end
complete -c cachealloc -n \"__fish_seen_subcommand_from {names}\" -a \"(__cachealloc_processes)\"
function __cachealloc_killed
    {KILLED}
end
complete -c cachealloc -n \"__fish_seen_subcommand_from {OF_KILLED}\" -a \"(__cachealloc_killed)\"
"
    )
}
