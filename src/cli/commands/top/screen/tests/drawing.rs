//! Tests of what terminals of various sizes show.

use ratatui::style::{Color, Modifier};

use super::super::bars;
use super::*;
use crate::kernel::libraries::WatchedGpu;
use crate::live::Gpu;

#[test]
fn a_wide_terminal_has_everything() {
    let mut state = state();
    let lines = drawn(&mut state, 120, 8);
    assert_eq!(lines[0], "cachealloc top  3 lines");
    let titles = "PID  GPU  ALLOCATED v      PEAK  RESERVED  BLOCKS  ALLOC/S      HITS  WAITS/S  \
                  OVER TIME  COMMAND";
    assert_eq!(lines[1], titles);
    let largest = "200    0     30.0 MiB  30.0 MiB  30.0 MiB       7   2.00 k  100.00 %     1.00  \
                   ██         ./app200 --some argument";
    assert_eq!(lines[2], largest);
    assert!(lines[3].contains("20.0 MiB") && lines[3].contains("▄█"), "{lines:#?}");
    assert_eq!(lines[6], "", "nothing is left out");
    assert!(lines[7].starts_with("q quit  ? help  Enter call sites  s, S sort"), "{lines:#?}");
}

/// Columns are dropped one by one, and the screen names them; the process and the memory it holds
/// stay.
#[test]
fn a_narrow_terminal_says_what_it_leaves_out() {
    let mut state = state();
    let order =
        ["WAITS/S", "HITS", "BLOCKS", "OVER TIME", "PEAK", "ALLOC/S", "RESERVED", "GPU", "COMMAND"];
    let mut fewest = 0;
    for width in (10..=120).rev() {
        let lines = drawn(&mut state, width, 60);
        let said = lines[6..59].join(" ");
        let gone = match said.split_once("no room: ") {
            None => Vec::new(),
            Some((_, gone)) => gone.trim_end().split(", ").collect(),
        };
        assert_eq!(gone, order[..gone.len()], "{width}: {lines:#?}");
        assert!(gone.len() >= fewest, "{width}: {lines:#?}");
        fewest = gone.len();
        let titles: Vec<&str> = lines[1].split("  ").map(str::trim).collect();
        for title in order {
            assert_ne!(titles.contains(&title), gone.contains(&title), "{width}: {lines:#?}");
        }
        if width >= 21 {
            assert!(lines[1].contains("PID") && lines[1].contains("ALLOCATED"), "{width}");
            assert!(lines[2].contains("200") && lines[2].contains("30.0 MiB"), "{lines:#?}");
        }
    }
    assert_eq!(fewest, order.len());
    let lines = drawn(&mut state, 80, 8);
    assert_eq!(lines[6], "no room: WAITS/S, HITS, BLOCKS");
    let titles = "PID  GPU  ALLOCATED v      PEAK  RESERVED  ALLOC/S  OVER TIME  COMMAND";
    assert_eq!(lines[1], titles);
    let lines = drawn(&mut state, 40, 8);
    assert_eq!(lines[1], "PID  GPU  ALLOCATED v  COMMAND");
    // On a low screen the names would take the lines of the processes.
    let lines = drawn(&mut state, 20, 10);
    assert_eq!(lines[8], "no room: 9 columns");
    assert!(lines[2].contains("200") && lines[4].contains("100"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small() {
    let mut state = state();
    press(&mut state, KeyCode::Enter);
    for watches in [true, false] {
        state.take(look(3));
        for (width, height) in [(1, 1), (2, 3), (5, 40), (300, 2), (7, 7)] {
            drawn(&mut state, width, height);
        }
        if watches {
            press(&mut state, KeyCode::Esc);
        }
    }
}

#[test]
fn one_process_with_its_sites_and_a_stack() {
    let mut state = state();
    press(&mut state, KeyCode::Enter);
    assert!(drawn(&mut state, 100, 30).join("\n").contains("waiting for call sites"));
    state.take(look(3));
    let text = drawn(&mut state, 100, 30).join("\n");
    for wanted in [
        "cachealloc top  process 200 ./app200 --some argument\n",
        "allocated over time, at most 30.0 MiB",
        " BYTES v  AT THE PEAK  BLOCKS  ALLOC/S  GPU  LIBRARY    CALL SITE\n",
        "3.00 MiB     3.00 MiB       3        0    0  libfoo.so  large_one path/b.c:8\n",
        "stack of the chosen call site, innermost first",
        "large_one /long/path/b.c:8\nmiddle b.c:9\nmain a.c:50\n",
        "Esc back",
    ] {
        assert!(text.contains(wanted.trim_start()), "{wanted}\n{text}");
    }
    // On a narrow screen columns of its numbers are dropped, and none is cut.
    let text = drawn(&mut state, 40, 30).join("\n");
    assert!(
        text.contains("\nPID  GPU  ALLOCATED v  RESERVED\n200    0     30.0 MiB  30.0 MiB\n"),
        "{text}"
    );
    assert!(drawn(&mut state, 15, 30).join("\n").contains("\nALLOCATED v\n"), "{text}");
    // If there are few lines, the stack is scrolled.
    press(&mut state, KeyCode::Right);
    let text = drawn(&mut state, 60, 8).join("\n");
    assert!(text.contains("frames 2 to 2 of 3") && text.contains("\nmiddle b.c:9\n"), "{text}");
    assert!(text.contains("no room: GPU, AT THE PEAK\n"), "{text}");
    // The process has ended.
    state.take(Look::default());
    let text = drawn(&mut state, 60, 30).join("\n");
    assert!(text.contains("process 200 has ended; these are its last numbers"), "{text}");
    assert!(text.contains("large_one path/b.c:8"), "{text}");
}

#[test]
fn hint_how_to_record_without_a_recording() {
    let mut state = state();
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::Enter);
    state.take(look(3));
    let text = drawn(&mut state, 80, 30).join("\n");
    let wanted = "nothing is recorded; start recording with: cachealloc record 100 on";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn screen_without_processes() {
    let mut state = State::new(None, usize::MAX);
    state.take(Look::default());
    let text = drawn(&mut state, 60, 8).join("\n");
    assert!(text.contains("nothing of this user runs under cachealloc"), "{text}");
    // Earlier lines are not shown either: a filter may hide all.
    state.take(look(1));
    write(&mut state, "/nothing of it");
    let lines = drawn(&mut state, 60, 8);
    assert_eq!(lines[0], "cachealloc top  0 lines  with \"nothing of it\"");
    assert!(lines[7].starts_with("/nothing of it_  Enter keeps it"), "{lines:#?}");
}

#[test]
fn names_steer_no_terminal() {
    let mut state = State::new(None, usize::MAX);
    let mut samples = vec![sample(1, 1, 1, SITES)];
    samples[0].command = "\u{1b}[2J\u{202e}gpj".to_string();
    samples[0].title = samples[0].command.clone();
    state.take(Look { samples, ..Look::default() });
    assert!(drawn(&mut state, 120, 8)[2].ends_with("?[2J?gpj"));
    press(&mut state, KeyCode::Enter);
    assert!(drawn(&mut state, 120, 8)[0].ends_with("process 1"));
    let named = SITES.replace("middle", "\\u001b[2Jmiddle");
    let mut samples = vec![sample(1, 2, 1, &named)];
    samples[0].command = "\u{1b}c".to_string();
    state.take(Look { samples, ..Look::default() });
    let text = drawn(&mut state, 120, 30).join("\n");
    assert!(text.contains("process 1 ?c\n") && text.contains("?[2Jmiddle"), "{text}");
}

/// Without colors, the chosen line still differs from the rest.
#[test]
fn no_color_disables_colours() {
    let mut state = state();
    let colors = |buffer: &Buffer| {
        let colored =
            |cell: &&ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        buffer.content().iter().filter(colored).count()
    };
    let with = drawn_by(&mut state, 80, 8, Palette { has_colors: true });
    assert_ne!(colors(&with), 0);
    let without = drawn_by(&mut state, 80, 8, Palette { has_colors: false });
    assert_eq!(colors(&without), 0);
    assert!(without[(0, 2)].modifier.contains(Modifier::REVERSED));
    assert!(!without[(0, 3)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn bars_show_the_most_as_full() {
    assert_eq!(bars::text(&[0, 1, 4, 8]), " ▁▄█");
    assert_eq!(bars::text(&[0, 0]), "  ");
    assert_eq!(bars::text(&[u64::MAX, 1]), "█▁");
}

/// Each GPU has a line with its free memory, as long as space is left for the processes.
#[test]
fn gpus_stand_above_the_processes() {
    let mut look = look(1);
    for (number, sample) in (0..).zip(&mut look.samples) {
        let (uuid, pci) = (format!("GPU-{number}"), format!("0000:{}1:00.0", number + 2));
        sample.statistics.gpus.push(Gpu {
            device: 0,
            uuid: Some(uuid.clone()),
            whole_uuid: None,
            pci: Some(pci),
            total_bytes: Some(80 << 30),
        });
        let (total_bytes, free_bytes) = (80 << 30, (5 + u64::from(number)) << 30);
        // A GPU that NVML does not see is named by its address.
        if number > 0 {
            look.watched.push(WatchedGpu {
                index: number,
                part: None,
                uuid,
                total_bytes,
                free_bytes,
            });
        }
    }
    look.samples[2].user += 1;
    let mut state = State::new(None, usize::MAX);
    state.take(look);
    let lines = drawn(&mut state, 130, 16);
    assert_eq!(
        lines[1],
        "GPU 1  [||||||||||||||||||| ]  6.00 GiB free of 80.0 GiB  0000:31:00.0  GPU-1"
    );
    assert_eq!(
        lines[2],
        "GPU 2  [||||||||||||||||||| ]  7.00 GiB free of 80.0 GiB  0000:41:00.0  GPU-2"
    );
    assert_eq!(lines[3], "GPU 21:00.0  80.0 GiB  0000:21:00.0  GPU-0");
    assert!(lines[4].contains("  USER  ") && lines[5].starts_with("200"), "{lines:#?}");
    assert!(lines[5].starts_with("200        1     30.0 MiB"), "{lines:#?}");
    let lines = drawn(&mut state, 130, 8);
    assert_eq!(lines[2], "and 2 more GPUs");
    assert!(drawn(&mut state, 130, 4)[1].starts_with("and 3 more GPUs"));
}
