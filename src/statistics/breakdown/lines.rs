//! A reconciled breakdown as lines of a table, which the command and the report share.

use cachealloc_text::{bytes, share, time};

use super::{Component, HOST, Method, Place, Reconciled, Row, Sum};

/// Age from which the driver's answers count as older than the rows they are added to.
const OLD_MS: u64 = 1000;

/// One line for people. A cell may be empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    pub bytes: String,
    /// Share of the sum.
    pub share: String,
    pub known_by: &'static str,
    pub library: String,
    pub memory: String,
}

impl Reconciled {
    /// Returns the rows that are added, the rest, their sum, and the rows that are not added.
    pub fn lines(&self) -> Vec<Line> {
        let own = |place, begin: &'static str| {
            self.in_place(place).map(move |row| self.line_of(row, begin))
        };
        let mut lines: Vec<Line> = own(Place::Sum, "").collect();
        if let (Some(rest), Some(sum)) = (self.rest_bytes, self.sum) {
            lines.push(Line {
                bytes: signed(rest),
                share: u64::try_from(rest).map(|rest| self.share(rest)).unwrap_or_default(),
                known_by: Method::Difference.word(),
                memory: self.rest_title(),
                ..Line::default()
            });
            lines.push(Line {
                bytes: bytes(sum.bytes()),
                share: self.share(sum.bytes()),
                memory: format!("= {}", sum.title()),
                ..Line::default()
            });
        }
        let launches = self.rows.iter().filter(|row| row.component == Component::Launches);
        let launches = launches.fold(0, |sum: u64, row| sum.saturating_add(row.bytes));
        let rest = self.rest_bytes.and_then(|rest| u64::try_from(rest).ok()).unwrap_or(0);
        let room = rest.saturating_add(launches);
        lines.extend(self.in_place(Place::Rest).map(|row| {
            let place = match launches {
                _ if row.bytes > room => "not yet, or only partly, allocated: ",
                0 => "in the rest, if a kernel needs it: ",
                _ => "in first launches or the rest, if a kernel needs it: ",
            };
            self.line_of(row, place)
        }));
        lines.extend(own(Place::Informational, "not added: "));
        lines
    }

    /// Returns the title above the lines. `gpu` identifies the GPU, if that is known.
    pub fn title(&self, gpu: Option<&str>) -> String {
        if self.device == HOST {
            return "host".to_string();
        }
        let total = self.total_bytes.map(bytes);
        let more = [gpu.map(str::to_string), total].into_iter().flatten();
        more.fold(format!("device {}", self.device), |title, more| format!("{title}, {more}"))
    }

    /// Returns how much has a row, and remarks on the driver's answers.
    pub fn notes(&self) -> Vec<String> {
        let named = self.named_shares().map(|[certain, with_differences]| {
            let uncertain = format!(
                ", {} without differences, which other processes may affect",
                share(certain)
            );
            let uncertain = if certain == with_differences { "" } else { &uncertain };
            format!("{} is accounted for{uncertain}", share(with_differences))
        });
        let missed = (self.missed_count > 0).then(|| {
            let count = self.missed_count;
            format!("not measured: {count} calls that may have used memory, because other memory changed meanwhile")
        });
        let of_sum = match self.sum {
            _ if self.device == HOST => None,
            None => Some("the memory in use on the device is unknown".to_string()),
            Some(_) => None,
        };
        let age = match self.age_ms {
            _ if self.device == HOST => None,
            None => Some("the driver was not asked: pools, graphs and limits are unknown".into()),
            Some(age) if age < OLD_MS => None,
            Some(age) => Some(format!(
                "the driver was asked {} earlier",
                time(age.saturating_mul(1_000_000))
            )),
        };
        [named, missed, of_sum, age].into_iter().flatten().collect()
    }

    fn line_of(&self, row: &Row, begin: &str) -> Line {
        let is_added = row.component.place() == Place::Sum;
        Line {
            bytes: bytes(row.bytes),
            share: if is_added { self.share(row.bytes) } else { String::new() },
            known_by: row.component.method().word(),
            library: row.library.clone(),
            memory: format!("{begin}{}", row.component.title()),
        }
    }

    fn share(&self, component: u64) -> String {
        match self.sum.map(Sum::bytes) {
            None | Some(0) => String::new(),
            Some(sum) => share(component.min(sum) as f64 / sum as f64),
        }
    }
}

fn signed(amount: i64) -> String {
    format!("{}{}", if amount < 0 { "-" } else { "" }, bytes(amount.unsigned_abs()))
}
