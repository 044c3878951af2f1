//! `cachealloc limit`: limits how much of each device a running program may hold from now on.

use std::fmt::Write as _;
use std::process::ExitCode;

use cachealloc_statistics::control::ControlCommand;
use clap::Args;

use crate::commands::Result;
use crate::commands::control::Target;
use crate::failure::Failure;
use crate::show::bytes;
use crate::size;

/// Limit the GPU memory of a running program, or remove the limit.
///
/// The limit applies to each device and replaces the one set by options or by the program. Memory
/// held above it is kept until the program frees it. Memory that the driver serves counts as well,
/// whenever it was allocated.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Size such as 4G, 1.5G or 512M (powers of 1024), or `none` for no limit.
    #[arg(value_parser = size)]
    limit: Size,
}

/// A limit, or `None` for no limit.
#[derive(Clone, Copy)]
struct Size(Option<u64>);

pub(crate) fn run(arguments: Arguments) -> Result {
    let session = arguments.target.find()?;
    let Size(wanted) = arguments.limit;
    let device = arguments.target.device;
    session.give(ControlCommand::Limit { device, bytes: wanted }, "the limit is unchanged")?;
    let process = session.process.0;
    let limits = session.statistics()?.limits;
    let concerned = || limits.iter().filter(|limit| device.is_none_or(|it| limit.device == it));
    let mut text = String::new();
    for limit in concerned() {
        let held = bytes(limit.held_bytes);
        let _ = match limit.limit_bytes {
            None => writeln!(text, "process {process} has no limit on device {}", limit.device),
            Some(most) => {
                let _ = write!(
                    text,
                    "process {process} may hold {} of device {}, and holds {held}",
                    bytes(most),
                    limit.device
                );
                let above = limit.held_bytes > most;
                writeln!(text, "{}", if above { ": more stays until it is freed" } else { "" })
            }
        };
    }
    if let Some(other) = concerned().find(|limit| limit.limit_bytes != wanted) {
        let now = other.limit_bytes.map_or("no limit".to_string(), bytes);
        return Err(Failure::new(format!(
            "the limit of process {process} on device {} is now {now}",
            other.device
        ))
        .next("another command changed it"));
    }
    crate::commands::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn size(text: &str) -> std::result::Result<Size, String> {
    if text == "none" {
        return Ok(Size(None));
    }
    // No request fits into less than a segment, and a limit beyond any device is not a limit.
    match size::parse(text) {
        None => Err(format!("{}, or none", size::ALLOWED)),
        Some(..0x10_0000) => Err("at least 1M; `none` removes the limit".into()),
        Some(0x20_0000_0000_0000..) => Err("less than 8192T".to_string()),
        Some(bytes) => Ok(Size(Some(bytes))),
    }
}
