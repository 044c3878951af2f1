//! Prints where the memory of a device is: as a table that adds up, and as JSON.

use std::fmt::Write as _;
use std::io;

use cachealloc_statistics::SCHEMA_VERSION;
use cachealloc_statistics::breakdown::{Line, Reconciled};
use cachealloc_text::Json;

use super::{Column, Table};

/// A breakdown, and remarks about it.
pub(crate) struct Explained {
    pub reconciled: Reconciled,
    /// The UUID of the device.
    pub gpu: Option<String>,
    /// Why the breakdown does not add up to NVML's number for the process.
    pub note: Option<&'static str>,
}

pub(crate) fn text(all: &[Explained]) -> String {
    let mut text = String::new();
    for (index, Explained { reconciled, gpu, note }) in all.iter().enumerate() {
        if index > 0 {
            text += "\n";
        }
        let _ = writeln!(text, "{}", reconciled.title(gpu.as_deref()));
        text += &table(reconciled);
        let notes = reconciled.notes().into_iter().chain(note.map(str::to_string));
        notes.for_each(|note| _ = writeln!(text, "{note}"));
    }
    text
}

fn table(reconciled: &Reconciled) -> String {
    let mut table = Table::new([
        Column::number("BYTES"),
        Column::number("SHARE").where_any(),
        Column::text("KNOWN BY"),
        Column::text("LIBRARY").where_any(),
        Column::text("MEMORY"),
    ])
    .wrapping();
    for Line { bytes, share, known_by, library, memory } in reconciled.lines() {
        table.row([bytes, share, known_by.to_string(), library, memory]);
    }
    table.text()
}

pub(crate) fn json(all: &[Explained]) -> String {
    let mut text = Vec::new();
    let mut json = Json::new(&mut text);
    let written = json.object(|json| {
        json.key("schema_version")?.number(SCHEMA_VERSION)?;
        json.key("devices")?.list(all, |json, explained| {
            json.line()?;
            json.object(|json| of_device(json, explained))
        })
    });
    let written = written.and_then(|()| json.end());
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    String::from_utf8(text).unwrap_or_default()
}

fn of_device(json: &mut Json<&mut Vec<u8>>, explained: &Explained) -> io::Result<()> {
    let Explained { reconciled, gpu, note } = explained;
    let number_or_null = |json: &mut Json<&mut Vec<u8>>, number: Option<i128>| match number {
        Some(number) => json.number(number),
        None => json.null(),
    };
    let text_or_null = |json: &mut Json<&mut Vec<u8>>, text: Option<&str>| match text {
        Some(text) => json.text(text),
        None => json.null(),
    };
    json.key("device")?.number(reconciled.device)?;
    text_or_null(json.key("uuid")?, gpu.as_deref())?;
    number_or_null(json.key("total_bytes")?, reconciled.total_bytes.map(i128::from))?;
    text_or_null(json.key("sum")?, reconciled.sum.map(|sum| sum.word()))?;
    number_or_null(json.key("sum_bytes")?, reconciled.sum.map(|sum| sum.bytes().into()))?;
    number_or_null(json.key("rest_bytes")?, reconciled.rest_bytes.map(i128::from))?;
    number_or_null(json.key("age_ms")?, reconciled.age_ms.map(i128::from))?;
    text_or_null(json.key("note")?, *note)?;
    json.key("missed")?.number(reconciled.missed_count)?;
    json.key("rows")?.list(&reconciled.rows, |json, row| {
        json.line()?;
        json.object(|json| {
            json.key("part")?.text(row.component.word())?;
            json.key("library")?.text(&row.library)?;
            json.key("bytes")?.number(row.bytes)?;
            json.key("method")?.text(row.component.method().word())?;
            json.key("place")?.text(row.component.place().word())
        })
    })
}
