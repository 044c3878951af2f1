//! What is known to differ, and therefore not generated: a row of the list of breaches, and the name of
//! an action, of a variant of one, or of settings. Who mends a row takes its lines out.

use std::collections::HashSet;

const KNOWN: &[(u32, &str)] = &[
    (1, "cached_threads"),
    (2, "init_again"),
    (3, "capture_beside"),
    (4, "many_captures"),
    (5, "capture_beside"),
    (6, "relaxed_requests"),
    (7, "pending_async"),
    (8, "async_block_freed_plainly"),
    (9, "ask_elsewhere"),
    (10, "to_host_5"),
    (10, "to_host_6"),
    (10, "to_host_7"),
    (10, "from_host_3"),
    (11, "to_host_8"),
    (12, "together_pinned"),
    (13, "register_twice"),
    (13, "together_registered_twice"),
    (14, "together_contexts"),
    (15, "short_context"),
    (16, "revoke_access"),
    (18, "request_in_host_function"),
    (19, "ask_the_pool"),
    (22, "together_virtual"),
    (22, "together_refused"),
    (23, "relaxed_requests"),
    (24, "expandable_pressure"),
    (25, "fill_and_red_zone"),
    (28, "expandable_pressure"),
    (26, "cached_contexts"),
];

/// All of it but what these rows are about.
pub fn known(but: &[u32]) -> HashSet<String> {
    let kept: HashSet<&str> =
        KNOWN.iter().filter(|(row, _)| but.contains(row)).map(|(_, name)| *name).collect();
    let names = KNOWN.iter().map(|(_, name)| *name);
    names.filter(|name| !kept.contains(name)).map(str::to_string).collect()
}
