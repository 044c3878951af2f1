//! `cachealloc report`: makes one HTML file from snapshots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use cachealloc_report::{FitWhen, Input};
use clap::Args;

use super::Result;
use crate::failure::{Failure, USAGE, say};
use crate::{output, snapshots};

/// Write a self-contained HTML report of snapshots.
///
/// The snapshots may be of cachealloc or PyTorch. Several are combined: ranks of one run are added
/// up, snapshots of one process are compared.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cachealloc report train.pickle                     writes train.html
  cachealloc report --open train.pickle              and opens it in a browser
  cachealloc report rank*.pickle -o all.html         all ranks of a run")]
pub(crate) struct Arguments {
    /// Snapshots: several ranks, or several times.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output file, or - for stdout; default: the name of the first snapshot with .html, in the
    /// current folder.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists.
    #[arg(long)]
    force: bool,
    /// Replay histories of any length to find the smallest device on which they run; default:
    /// those of up to 100,000 entries.
    #[arg(long)]
    fit: bool,
    /// Open the report with xdg-open.
    #[arg(long)]
    open: bool,
}

/// Name of the report if the snapshot comes from stdin.
const NAME_DEFAULT: &str = "cachealloc";

pub(crate) fn run(arguments: Arguments) -> Result {
    let Arguments { files, output, force, fit, open } = arguments;
    let fit = fit_when(fit);
    let path = output.unwrap_or_else(|| name_for(&files[0]));
    if path.as_os_str() == output::STDOUT {
        if open {
            let what = "cannot use --open with -o -: a report on stdout is not a file";
            return Err(Failure::new(what).code(USAGE));
        }
        to_file(&files, fit, &path)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::check(&path)?;
    match fs::symlink_metadata(&path) {
        Ok(there) if there.is_file() && !force => return Err(output::already_there(&path)),
        // A pipe or a device has no content to lose.
        Ok(_) => to_file(&files, fit, &path)?,
        Err(_) => {
            let inputs = read_grouped(&files)?;
            let only = std::iter::once(path.clone());
            output::write_new(only, |mut out| cachealloc_report::write(&inputs, fit, &mut out))?;
        }
    }
    say(format_args!("report: {}", path.display()));
    if open {
        show(&path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn name_for(snapshot: &Path) -> PathBuf {
    let stem = snapshot.file_stem().filter(|stem| *stem != output::STDOUT);
    PathBuf::from(stem.unwrap_or(NAME_DEFAULT.as_ref())).with_added_extension("html")
}

fn to_file(files: &[PathBuf], fit: FitWhen, path: &Path) -> Result<()> {
    let inputs = read_grouped(files)?;
    output::write(path, |mut out| cachealloc_report::write(&inputs, fit, &mut out))
}

/// Writes the report of `run --report` after the program has ended. Replaces a file of this name.
/// Returns the files that the report is made of.
pub(crate) fn write(files: &[PathBuf], fit: FitWhen, path: &Path) -> Result<Vec<PathBuf>> {
    let (inputs, _) = cachealloc_report::last_of_each_process(read_all(files)?, false);
    output::write(path, |mut out| cachealloc_report::write(&inputs, fit, &mut out))?;
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let is_used = |file: &&PathBuf| names.contains(&name_of(file).as_str());
    Ok(files.iter().filter(is_used).cloned().collect())
}

/// Reads the snapshots. If they are of several processes, only the last of each is used: it has the
/// history of the earlier ones, which would otherwise be counted twice.
pub(crate) fn read_grouped(files: &[PathBuf]) -> Result<Vec<Input>> {
    let (inputs, earlier) = cachealloc_report::last_of_each_process(read_all(files)?, true);
    if !earlier.is_empty() {
        let names = earlier.join(", ");
        say(format_args!("left out {names}: later snapshots of the same processes are given"));
    }
    Ok(inputs)
}

/// Returns the meaning of the option `--fit`.
pub(crate) fn fit_when(asked: bool) -> FitWhen {
    if asked { FitWhen::Always } else { FitWhen::Short }
}

pub(crate) fn read_all(files: &[PathBuf]) -> Result<Vec<Input>> {
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Input> {
    let snapshot = snapshots::read(path)?;
    Ok(Input { name: name_of(path), snapshot })
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn show(path: &Path) -> Result<()> {
    // An absolute path cannot be taken for an option, even if the name begins with a dash.
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut program = Command::new("xdg-open");
    program.arg(whole).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = match program.status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("xdg-open failed ({status})"),
        Err(error) => format!("cannot start xdg-open: {error}"),
    };
    Err(Failure::new(why).next(format!("open {} in a browser", path.display())))
}
