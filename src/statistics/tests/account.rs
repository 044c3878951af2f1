//! Checks that rows add up, and that the texts of a snapshot give the same rows.

use cachealloc_statistics::breakdown::{
    Breakdown, Component, HOST, Line, NvmlReading, Sum, of_texts,
};

fn breakdown() -> Breakdown {
    let mut breakdown = Breakdown { in_use_bytes: Some(1000), ..Breakdown::new(0) };
    breakdown.add(Component::CacheHeld, "", 300);
    breakdown.add(Component::Context, "", 250);
    breakdown.add(Component::Managed, "", 9000);
    breakdown.add(Component::LocalMemory, "", 70);
    breakdown
}

#[track_caller]
fn reconciled(breakdown: &Breakdown, sum: Option<Sum>, context: Option<u64>, rest: Option<i64>) {
    let reconciled = breakdown.reconcile(sum);
    let row = reconciled.rows.iter().find(|row| row.component == Component::Context);
    assert_eq!(
        (row.map(|row| row.bytes), reconciled.rest_bytes),
        (context, rest),
        "{reconciled:?}"
    );
}

#[test]
fn rows_add_up() {
    let breakdown = breakdown();
    // Others have 400 of the 1000, and are assumed to have had them then.
    reconciled(&breakdown, Some(Sum::Process(600)), None, Some(300));
    reconciled(&breakdown, Some(Sum::Process(800)), Some(50), Some(450));
    reconciled(&breakdown, Some(Sum::LessOthers(1000)), Some(250), Some(450));
    reconciled(&breakdown, None, Some(250), Some(450));
    // Others must have ended since: the context has no more than what is left.
    reconciled(&breakdown, Some(Sum::Device(500)), Some(200), Some(0));
    reconciled(&breakdown, Some(Sum::Device(300)), None, Some(0));
    // The process has grown since the used memory was read, or since the sum was: it still has its
    // context.
    reconciled(&breakdown, Some(Sum::Process(1001)), Some(250), Some(451));
    reconciled(&breakdown, Some(Sum::Device(290)), Some(250), Some(-260));
    // The process has changed meanwhile, and others have more than was in use then.
    reconciled(&breakdown, Some(Sum::Process(200)), None, Some(-100));
    let unknown = Breakdown { in_use_bytes: None, ..breakdown };
    reconciled(&unknown, None, None, None);
    reconciled(&unknown, Some(Sum::Process(600)), None, Some(300));
    assert_eq!(unknown.reconcile(None).named_shares(), None);
    assert_eq!(unknown.reconcile(Some(Sum::Process(600))).named_shares(), Some([0.5; 2]));
    assert_eq!(unknown.reconcile(Some(Sum::Process(0))).named_shares(), None);
}

/// Measured rows come before the rest for the first context: another process took some of the
/// memory, and the last rows lose it. If the counted rows exceed the sum, they have grown since it
/// was read, and nothing is shortened.
#[test]
fn measured_calls_fit_into_the_sum() {
    let mut breakdown = breakdown();
    breakdown.add(Component::Modules, "a", 80);
    breakdown.add(Component::Launches, "b", 60);
    let taken = |sum| {
        let reconciled = breakdown.reconcile(Some(Sum::Process(sum)));
        let bytes = |component| {
            reconciled.rows.iter().find(|row| row.component == component).map(|row| row.bytes)
        };
        let rows = [Component::Modules, Component::Launches, Component::Context].map(bytes);
        (rows, reconciled.rest_bytes.expect("a sum"))
    };
    assert_eq!(taken(1000), ([Some(80), Some(60), Some(250)], 310));
    assert_eq!(taken(440), ([Some(80), Some(60), None], 0));
    assert_eq!(taken(400), ([Some(80), Some(20), None], 0));
    assert_eq!(taken(370), ([Some(70), None, None], 0));
    assert_eq!(taken(290), ([Some(80), Some(60), None], -150));
    let reconciled = breakdown.reconcile(Some(Sum::Process(1000)));
    let [certain, with_differences] = reconciled.named_shares().expect("a sum");
    assert!((certain - 0.3).abs() < 1e-9 && (with_differences - 0.69).abs() < 1e-9);
    let notes =
        |missed_count| Breakdown { missed_count, ..breakdown.clone() }.reconcile(None).notes();
    assert!(!notes(0).iter().any(|note| note.contains("not measured")));
    assert!(notes(3).iter().any(|note| note.starts_with("not measured: 3 calls ")));
}

/// NVML's reading that came with the rows is their sum, unless a later one is known.
#[test]
fn nvml_reading_is_the_sum() {
    let sum = |in_use_bytes, nvml_reading, later| {
        Breakdown { in_use_bytes, nvml_reading, ..breakdown() }.reconcile(later).sum
    };
    let (process, others) = (Some(NvmlReading::Process(600)), Some(NvmlReading::Others(300)));
    assert_eq!(sum(Some(1000), process, None), Some(Sum::Process(600)));
    assert_eq!(sum(None, process, None), Some(Sum::Process(600)));
    assert_eq!(sum(Some(1000), process, Some(Sum::Process(5))), Some(Sum::Process(5)));
    assert_eq!(sum(Some(1000), others, None), Some(Sum::LessOthers(700)));
    assert_eq!(sum(Some(200), others, None), Some(Sum::Device(200)));
    assert_eq!(sum(None, others, None), None);
}

/// Another process had 100 of the 250 that were in use when the first context had been created: the
/// context took 150, and 250 have no row.
#[test]
fn memory_changed_by_others_is_uncertain() {
    let truth = (300.0 + 150.0) / 700.0;
    for (others_bytes, row_bytes) in [(100, 150), (40, 210), (0, 250)] {
        let breakdown = Breakdown { in_use_bytes: Some(700 + others_bytes), ..breakdown() };
        let reconciled = breakdown.reconcile(Some(Sum::Process(700)));
        let row = reconciled.rows.iter().find(|row| row.component == Component::Context);
        assert_eq!(row.map(|row| row.bytes), Some(row_bytes));
        let [certain, with_context] = reconciled.named_shares().expect("a sum");
        assert!((certain - 300.0 / 700.0).abs() < 1e-9, "{others_bytes}: {certain}");
        assert!(certain < truth && truth < with_context + 1e-9, "{others_bytes}: {with_context}");
    }
}

#[test]
fn texts_come_back() {
    let mut breakdown = breakdown();
    breakdown.add(Component::Arrays, "libstrange name.so", 5);
    breakdown.add(Component::Arrays, "", 6);
    breakdown.add(Component::Arrays, "", 0);
    breakdown.add(Component::Arrays, "", 1);
    let nvml_reading = Some(NvmlReading::Process(700));
    let (total_bytes, age_ms, missed_count) = (Some(2), Some(3), 4);
    let breakdown = Breakdown { total_bytes, age_ms, nvml_reading, missed_count, ..breakdown };
    let nvml_reading = Some(NvmlReading::Others(700));
    let host =
        Breakdown { rows: vec![], total_bytes: Some(1), nvml_reading, ..Breakdown::new(HOST) };
    let texts = [breakdown.texts(), host.texts()].concat();
    let odd = [("memory", "1"), ("memory x y", "1"), ("memory 0 cache_held", "-1")];
    let odd = odd.into_iter().chain([("memory 0 new", "1"), ("version", "0"), ("", "")]);
    let texts = texts.iter().map(|(name, text)| (&**name, &**text));
    assert_eq!(of_texts(texts.chain(odd)), [host, breakdown]);
}

#[test]
fn each_part_has_a_word_of_its_own() {
    for component in Component::ALL {
        assert_eq!(Component::of_word(component.word()), Some(*component));
        let others = ["total", "in_use", "age_ms", "process", "others", "missed"];
        assert!(!others.contains(&component.word()));
    }
}

#[test]
fn lines_say_what_is_not_known() {
    let breakdown = breakdown();
    let lines = |sum| {
        let lines = breakdown.reconcile(sum).lines();
        let line = |line: &Line| [&line.bytes, &line.share, line.known_by].join("|");
        lines.iter().map(line).collect::<Vec<_>>()
    };
    let beside = ["70 B||asked", "8.79 KiB||counted"];
    let wanted = ["300 B|37.50 %|counted", "50 B|6.25 %|difference", "450 B|56.25 %|difference"];
    let sum = ["800 B|100.00 %|"];
    assert_eq!(lines(Some(Sum::Process(800))), [&wanted[..], &sum, &beside].concat());
    let less = ["300 B|100.00 %|counted", "-100 B||difference", "200 B|100.00 %|"];
    assert_eq!(lines(Some(Sum::Process(200))), [&less[..], &beside].concat());
    let notes = |in_use_bytes, age_ms| {
        let breakdown = Breakdown { in_use_bytes, age_ms, ..breakdown.clone() };
        breakdown.reconcile(None).notes()
    };
    assert_eq!(
        notes(Some(1000), Some(999)),
        ["55.00 % is accounted for, 30.00 % without differences, which other processes may affect"]
    );
    assert_eq!(notes(Some(1000), Some(2500))[1], "the driver was asked 2.50 s earlier");
    assert!(notes(None, None)[0].contains("in use on the device is unknown"));
    assert!(notes(None, None)[1].contains("was not asked"));
    assert_eq!(Breakdown::new(HOST).reconcile(None).notes(), [""; 0]);
}
