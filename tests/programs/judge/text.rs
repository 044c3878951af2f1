//! Programs as text, one operation a line: `THREAD OPERATION NUMBERS`. `#` begins a comment.

use std::fmt::Write;

use crate::grammar::{Line, Op, Program, THREADS_MAX};

impl Program {
    pub fn text(&self) -> String {
        let mut text = String::new();
        write!(text, "theme {} seed {} memory_mb {}", self.theme, self.seed, self.memory_mb)
            .expect("writing to a string");
        let devices = match self.devices {
            0 | 1 => String::new(),
            more => format!(" devices {more}"),
        };
        writeln!(text, "{devices}").expect("writing to a string");
        for line in &self.lines {
            writeln!(text, "{}", line.text()).expect("writing to a string");
        }
        text
    }

    pub fn parse(text: &str) -> Result<Program, String> {
        let mut program = Program::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let read = match line.strip_prefix("theme ") {
                Some(rest) => head(&mut program, rest),
                None => Line::parse(line).map(|line| program.lines.push(line)),
            };
            read.ok_or_else(|| format!("line {}: cannot read {line:?}", number + 1))?;
        }
        Ok(program)
    }

    pub fn read_file(path: &str) -> Result<Program, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Program::parse(&text).map_err(|error| format!("{path}: {error}"))
    }
}

fn head(program: &mut Program, rest: &str) -> Option<()> {
    let mut words = rest.split_whitespace();
    program.theme = words.next()?.to_string();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "seed" => program.seed = value.parse().ok()?,
            "memory_mb" => program.memory_mb = value.parse().ok()?,
            "devices" => program.devices = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(())
}

impl Line {
    pub fn text(&self) -> String {
        let numbers: Vec<String> = self.args.iter().map(u64::to_string).collect();
        format!("{} {} {}", self.thread, self.op.name(), numbers.join(" ")).trim_end().to_string()
    }

    fn parse(text: &str) -> Option<Line> {
        let mut words = text.split_whitespace();
        let thread = words.next()?.parse().ok().filter(|t| usize::from(*t) < THREADS_MAX)?;
        let op = Op::named(words.next()?)?;
        let args: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        (args.len() == op.arguments().len()).then_some(Line { thread, op, args })
    }
}
