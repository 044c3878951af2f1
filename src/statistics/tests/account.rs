//! Rows add up, and come back from the texts of a snapshot.

use cachealloc_statistics::account::{Account, HOST, Line, Part, Said, Sum, of_texts};

fn account() -> Account {
    let mut account = Account { in_use_bytes: Some(1000), ..Account::new(0) };
    account.add(Part::CacheHeld, "", 300);
    account.add(Part::Context, "", 250);
    account.add(Part::Managed, "", 9000);
    account.add(Part::LocalMemory, "", 70);
    account
}

#[track_caller]
fn settled(account: &Account, sum: Option<Sum>, context: Option<u64>, rest: Option<i64>) {
    let settled = account.settle(sum);
    let row = settled.rows.iter().find(|row| row.part == Part::Context);
    assert_eq!((row.map(|row| row.bytes), settled.rest_bytes), (context, rest), "{settled:?}");
}

#[test]
fn rows_add_up() {
    let account = account();
    // Others have 400 of the 1000, and are taken to have had them then.
    settled(&account, Some(Sum::Process(600)), None, Some(300));
    settled(&account, Some(Sum::Process(800)), Some(50), Some(450));
    settled(&account, Some(Sum::LessOthers(1000)), Some(250), Some(450));
    settled(&account, None, Some(250), Some(450));
    // Others must have gone since: the context has no more than what is left.
    settled(&account, Some(Sum::Device(500)), Some(200), Some(0));
    settled(&account, Some(Sum::Device(300)), None, Some(0));
    // The process has grown since all that is in use was asked for, or since the sum was: it still has its context.
    settled(&account, Some(Sum::Process(1001)), Some(250), Some(451));
    settled(&account, Some(Sum::Device(290)), Some(250), Some(-260));
    // The process has changed meanwhile, and others have more than was in use then.
    settled(&account, Some(Sum::Process(200)), None, Some(-100));
    let unknown = Account { in_use_bytes: None, ..account };
    settled(&unknown, None, None, None);
    settled(&unknown, Some(Sum::Process(600)), None, Some(300));
    assert_eq!(unknown.settle(None).named_shares(), None);
    assert_eq!(unknown.settle(Some(Sum::Process(600))).named_shares(), Some([0.5; 2]));
    assert_eq!(unknown.settle(Some(Sum::Process(0))).named_shares(), None);
}

/// What calls took is there before what is left for the first context: another process took some of it, and the last rows
/// lose it. Where what is counted is more than the sum, that has grown since, and nothing is shortened.
#[test]
fn what_calls_took_fits_in() {
    let mut account = account();
    account.add(Part::Modules, "a", 80);
    account.add(Part::Launches, "b", 60);
    let taken = |sum| {
        let settled = account.settle(Some(Sum::Process(sum)));
        let bytes = |part| settled.rows.iter().find(|row| row.part == part).map(|row| row.bytes);
        let rows = [Part::Modules, Part::Launches, Part::Context].map(bytes);
        (rows, settled.rest_bytes.expect("a sum"))
    };
    assert_eq!(taken(1000), ([Some(80), Some(60), Some(250)], 310));
    assert_eq!(taken(440), ([Some(80), Some(60), None], 0));
    assert_eq!(taken(400), ([Some(80), Some(20), None], 0));
    assert_eq!(taken(370), ([Some(70), None, None], 0));
    assert_eq!(taken(290), ([Some(80), Some(60), None], -150));
    let settled = account.settle(Some(Sum::Process(1000)));
    let [certain, with_differences] = settled.named_shares().expect("a sum");
    assert!((certain - 0.3).abs() < 1e-9 && (with_differences - 0.69).abs() < 1e-9);
    let notes = |missed_count| Account { missed_count, ..account.clone() }.settle(None).notes();
    assert!(!notes(0).iter().any(|note| note.contains("not measured")));
    assert!(notes(3).iter().any(|note| note.starts_with("not measured: 3 calls ")));
}

/// Said together with the rows, a sum is theirs unless a later one is known.
#[test]
fn what_nvml_said_is_the_sum() {
    let sum =
        |in_use_bytes, said, later| Account { in_use_bytes, said, ..account() }.settle(later).sum;
    let (process, others) = (Some(Said::Process(600)), Some(Said::Others(300)));
    assert_eq!(sum(Some(1000), process, None), Some(Sum::Process(600)));
    assert_eq!(sum(None, process, None), Some(Sum::Process(600)));
    assert_eq!(sum(Some(1000), process, Some(Sum::Process(5))), Some(Sum::Process(5)));
    assert_eq!(sum(Some(1000), others, None), Some(Sum::LessOthers(700)));
    assert_eq!(sum(Some(200), others, None), Some(Sum::Device(200)));
    assert_eq!(sum(None, others, None), None);
}

/// Another process had 100 of the 250 that were in use when the first context had been made: the context took 150, and
/// 250 have no row.
#[test]
fn what_a_neighbour_gave_back_is_not_certain() {
    let truth = (300.0 + 150.0) / 700.0;
    for (others_bytes, row_bytes) in [(100, 150), (40, 210), (0, 250)] {
        let account = Account { in_use_bytes: Some(700 + others_bytes), ..account() };
        let settled = account.settle(Some(Sum::Process(700)));
        let row = settled.rows.iter().find(|row| row.part == Part::Context);
        assert_eq!(row.map(|row| row.bytes), Some(row_bytes));
        let [certain, with_context] = settled.named_shares().expect("a sum");
        assert!((certain - 300.0 / 700.0).abs() < 1e-9, "{others_bytes}: {certain}");
        assert!(certain < truth && truth < with_context + 1e-9, "{others_bytes}: {with_context}");
    }
}

#[test]
fn texts_come_back() {
    let mut account = account();
    account.add(Part::Arrays, "libstrange name.so", 5);
    account.add(Part::Arrays, "", 6);
    account.add(Part::Arrays, "", 0);
    account.add(Part::Arrays, "", 1);
    let said = Some(Said::Process(700));
    let (total_bytes, age_ms, missed_count) = (Some(2), Some(3), 4);
    let account = Account { total_bytes, age_ms, said, missed_count, ..account };
    let said = Some(Said::Others(700));
    let host = Account { rows: vec![], total_bytes: Some(1), said, ..Account::new(HOST) };
    let texts = [account.texts(), host.texts()].concat();
    let odd = [("memory", "1"), ("memory x y", "1"), ("memory 0 cache_held", "-1")];
    let odd = odd.into_iter().chain([("memory 0 new", "1"), ("version", "0"), ("", "")]);
    let texts = texts.iter().map(|(name, text)| (&**name, &**text));
    assert_eq!(of_texts(texts.chain(odd)), [host, account]);
}

#[test]
fn each_part_has_a_word_of_its_own() {
    for part in Part::ALL {
        assert_eq!(Part::of_word(part.word()), Some(*part));
        let others = ["total", "in_use", "age_ms", "process", "others", "missed"];
        assert!(!others.contains(&part.word()));
    }
}

#[test]
fn lines_say_what_is_not_known() {
    let account = account();
    let lines = |sum| {
        let lines = account.settle(sum).lines();
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
        let account = Account { in_use_bytes, age_ms, ..account.clone() };
        account.settle(None).notes()
    };
    assert_eq!(
        notes(Some(1000), Some(999)),
        [
            "55.00 % of it has a row, 30.00 % without differences, which other processes may have changed"
        ]
    );
    assert_eq!(notes(Some(1000), Some(2500))[1], "the driver was asked 2.50 s before");
    assert!(notes(None, None)[0].contains("in use on the device is not known"));
    assert!(notes(None, None)[1].contains("was not asked"));
    assert_eq!(Account::new(HOST).settle(None).notes(), [""; 0]);
}
