//! Tests of how keys change the state.

use ratatui::crossterm::event::{KeyEventKind, KeyModifiers};

use super::*;

#[test]
fn arrows_choose_a_line() {
    let mut state = state();
    assert_eq!(shown(&state), ["200", "300", "100"]);
    assert_eq!(chosen(&state), "200");
    for (code, wanted) in [
        (KeyCode::Down, "300"),
        (KeyCode::Char('j'), "100"),
        (KeyCode::Down, "100"),
        (KeyCode::Char('k'), "300"),
        (KeyCode::Home, "200"),
        (KeyCode::Up, "200"),
        (KeyCode::End, "100"),
    ] {
        assert_eq!(press(&mut state, code), Effect::None);
        assert_eq!(chosen(&state), wanted, "{code:?}");
    }
    state.page = 2;
    press(&mut state, KeyCode::PageUp);
    assert_eq!(chosen(&state), "200");
    press(&mut state, KeyCode::PageDown);
    assert_eq!(chosen(&state), "100");
}

/// The choice belongs to a process, not to a place in the table.
#[test]
fn the_choice_stays_with_its_process() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    assert_eq!(chosen(&state), "300");
    let mut next = look(3);
    next.samples[2] = sample(300, 3, 500, "null");
    state.take(next.clone());
    assert_eq!(shown(&state), ["300", "200", "100"]);
    assert_eq!(chosen(&state), "300");
    // An ended process stays there with its last numbers.
    next.samples.remove(2);
    state.take(next);
    assert_eq!(chosen(&state), "300");
    let ended = drawn(&mut state, 130, 8).into_iter().find(|line| line.starts_with("300"));
    assert!(
        ended.is_some_and(|line| line.contains("500 MiB") && line.contains("(ended) ./app300"))
    );
    state.take(Look::default());
    assert_eq!(shown(&state), ["300", "200", "100"]);
    // A new process with that number takes its place.
    state.take(look(4));
    assert_eq!(shown(&state).len(), 3);
    assert!(!drawn(&mut state, 130, 8).join("\n").contains("(ended)"));
}

#[test]
fn a_key_explains_the_keys() {
    let mut state = state();
    press(&mut state, KeyCode::Char('?'));
    let lines = drawn(&mut state, 80, 24).join("\n");
    assert!(lines.contains("filter by text") && !lines.contains("./app200"));
    press(&mut state, KeyCode::Down);
    assert!(drawn(&mut state, 80, 24).join("\n").contains("./app200"));
    press(&mut state, KeyCode::Char('h'));
    assert_eq!(press(&mut state, KeyCode::Char('q')), Effect::Quit);
}

#[test]
fn the_order_is_that_of_a_column() {
    let mut state = state();
    press(&mut state, KeyCode::Char('r'));
    assert_eq!(shown(&state), ["100", "300", "200"]);
    // From ALLOCATED back over GPU, which is equal for all and keeps the order, to PID.
    press(&mut state, KeyCode::Char('S'));
    assert_eq!(shown(&state), ["200", "300", "100"]);
    press(&mut state, KeyCode::Char('S'));
    assert_eq!(shown(&state), ["100", "200", "300"]);
    press(&mut state, KeyCode::Char('S'));
    assert_eq!(state.processes.sort, 10);
    press(&mut state, KeyCode::Char('s'));
    assert_eq!((state.processes.sort, state.processes.reversed), (0, false));
    // Unknown values come last in both directions.
    let mut next = look(3);
    next.silent.push(Process(4_000_000));
    state.take(next);
    state.processes.sort = 2;
    for reversed in [false, true] {
        state.processes.reversed = reversed;
        state.processes.arrange();
        assert_eq!(shown(&state).last(), Some(&"4000000"));
    }
}

#[test]
fn a_filter_leaves_lines_out() {
    let mut state = state();
    press(&mut state, KeyCode::Char('/'));
    write(&mut state, "APP3qs");
    assert_eq!(shown(&state), [""; 0]);
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Backspace);
    assert_eq!(shown(&state), ["300"]);
    assert_eq!(press(&mut state, KeyCode::Enter), Effect::None, "it ends the filter's text");
    assert_eq!((shown(&state), chosen(&state)), (vec!["300"], "300"));
    state.take(look(5));
    assert_eq!(shown(&state), ["300"], "it stays");
    press(&mut state, KeyCode::Esc);
    assert_eq!(shown(&state).len(), 3);
    press(&mut state, KeyCode::Char('/'));
    write(&mut state, "app1");
    press(&mut state, KeyCode::Esc);
    assert_eq!((shown(&state).len(), state.writes_filter), (3, false));
}

#[test]
fn enter_leads_to_call_sites_and_their_stacks() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Enter), Effect::Watch(Some(Process(200))));
    assert!(state.site().is_none(), "they are asked for only now");
    state.take(look(3));
    assert_eq!(state.site().expect("a site").frames[0].name, "large_one");
    press(&mut state, KeyCode::Right);
    press(&mut state, KeyCode::Right);
    press(&mut state, KeyCode::Right);
    let frame = |state: &State| state.watched.as_ref().expect("a process").frame;
    assert_eq!(frame(&state), 2, "the last of three");
    press(&mut state, KeyCode::Left);
    assert_eq!(frame(&state), 1);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.site().expect("a site").frames[0].name, "small_one");
    assert_eq!(frame(&state), 0, "another stack");
    // The filter now applies to call sites.
    press(&mut state, KeyCode::Char('/'));
    write(&mut state, "libfoo");
    press(&mut state, KeyCode::Enter);
    assert_eq!((state.sites.shown.len(), shown(&state).len()), (1, 3));
    assert_eq!(press(&mut state, KeyCode::Esc), Effect::None);
    assert_eq!(state.sites.shown.len(), 2);
    assert_eq!(press(&mut state, KeyCode::Esc), Effect::Watch(None));
    assert!(state.watched.is_none());
    assert_eq!(press(&mut state, KeyCode::Esc), Effect::None);
}

/// A process named on the command line has no list to return to.
#[test]
fn a_named_process_is_the_only_one() {
    let mut state = State::new(Some(Process(200)), usize::MAX);
    state.take(Look { samples: vec![sample(200, 1, 30, SITES)], ..Look::default() });
    assert_eq!(press(&mut state, KeyCode::Esc), Effect::None);
    assert!(state.watched.is_some() && state.site().is_some());
    // After the process ends, its last data stay visible and are marked as such.
    state.take(Look::default());
    assert!(state.watched.as_ref().is_some_and(|watched| watched.has_ended));
    assert!(state.site().is_some());
}

#[test]
fn keys_that_quit_and_signals_that_stop() {
    let mut state = state();
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Effect::Quit);
    assert_eq!(state.key(control('c')), Effect::Quit);
    assert_eq!(state.key(control('z')), Effect::Suspend);
    let mut released = KeyEvent::from(KeyCode::Char('q'));
    released.kind = KeyEventKind::Release;
    assert_eq!(state.key(released), Effect::None);
    // In a filter, q is a letter.
    press(&mut state, KeyCode::Char('/'));
    assert_eq!(press(&mut state, KeyCode::Char('q')), Effect::None);
    assert_eq!(state.key(control('c')), Effect::Quit);
}

#[test]
fn no_more_lines_than_wanted() {
    let mut state = State::new(None, 2);
    state.take(look(1));
    assert_eq!(shown(&state), ["200", "100"]);
}
