//! A differential test with random programs: each is compared with a run of itself without the
//! library.
//!
//!     judge generate SEED THEME           prints a program
//!     judge play FILE... --log LOG...     plays them in turn, on the driver that is loaded
//!     judge run --lib LIB --driver DIR    makes, runs and judges many (see `arguments.rs`)
//!     judge check FILE... --lib LIB --driver DIR
//!     judge table --lib LIB --driver DIR  rules left out, programs until found (`table.rs`)
//!     judge made --lib LIB --driver DIR   functions of the driver that programs call
//!     judge shrink FILE --lib LIB --driver DIR --conf CONF
//!
//! A program is valid if the simulated driver finds nothing wrong with it without the library,
//! however long its kernels take. A line counts if all runs without the library agree on it. Under
//! the library, each line that counts must have the same result.

mod arguments;
mod batch;
mod campaign;
mod compare;
mod driver_crashes;
mod ending;
mod generate;
mod gpus;
mod grammar;
mod judgement;
mod log;
mod play;
mod run;
mod shrink;
mod table;
mod text;

use arguments::Arguments;
use grammar::Program;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let command = if words.is_empty() { String::new() } else { words.remove(0) };
    let done = Arguments::parse(&words).and_then(|arguments| match command.as_str() {
        "generate" => {
            let (seed, theme) = (arguments.free(0)?, arguments.free(1)?);
            let seed = seed.parse().map_err(|_| format!("{seed} is no seed"))?;
            print!("{}", generate::program(seed, &theme, &arguments.without())?.text());
            Ok(true)
        }
        "play" => {
            let options = |number| arguments.play_options(number);
            let programs = arguments.files().iter().enumerate();
            let programs: Result<Vec<_>, String> = programs
                .map(|(number, file)| Ok((Program::read_file(file)?, options(number)?)))
                .collect();
            play::play_each(programs?).map(|()| true)
        }
        "run" => campaign::run(&arguments),
        "table" => table::table(&arguments),
        "made" => campaign::made(&arguments),
        "check" => campaign::check(&arguments),
        "shrink" => campaign::shrink(&arguments),
        _ => Err("judge generate | play | run | check | shrink | table | made".into()),
    });
    match done {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("judge: {error}");
            std::process::exit(2);
        }
    }
}
