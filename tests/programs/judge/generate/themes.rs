//! The themes: which actions a program prefers.

use super::maker::Maker;

pub type Action = (&'static str, usize, fn(&mut Maker));

pub struct Theme {
    pub name: &'static str,
    /// Number of lines of a program.
    pub lines: usize,
    /// Device memory in MiB.
    pub memory_mb: u64,
    pub devices: u64,
    /// Percentage of the orderings that rely on a free.
    pub leaning: u64,
    /// Number of threads that take turns.
    pub threads: usize,
    pub actions: &'static [Action],
}

pub fn themes() -> Vec<&'static str> {
    THEMES.iter().map(|theme| theme.name).collect()
}

/// Number of devices that programs of the theme use.
pub fn devices_of(name: &str) -> u64 {
    find(name).map_or(1, |theme| theme.devices)
}

pub fn find(name: &str) -> Option<&'static Theme> {
    THEMES.iter().find(|theme| theme.name == name)
}

macro_rules! actions {
    ($($action:ident $weight:literal),+ $(,)?) => {
        &[$((stringify!($action), $weight, |maker: &mut Maker| { maker.$action(); })),+]
    };
}

#[rustfmt::skip]
const THEMES: &[Theme] = &[
    Theme {
        name: "order", lines: 600, memory_mb: 1024, devices: 1, leaning: 60, threads: 3,
        actions: actions![
            allocate 16, free_any 14, fill 20, copy 10, read 8, switch_thread 12, change_streams 3,
            ask 6, wait 2, ask_about_a_block 2, device_wait 1, green 1, faults 1,
        ],
    },
    Theme {
        name: "own", lines: 600, memory_mb: 1024, devices: 1, leaning: 0, threads: 3,
        actions: actions![
            allocate 16, free_any 14, fill 20, copy 10, read 5, switch_thread 10, change_streams 3,
            write_host 4, host_read 2, read_host 4, wait 2, simple_graph 1, launch_graph 2, drop_graph 1,
        ],
    },
    Theme {
        name: "host", lines: 600, memory_mb: 1024, devices: 1, leaning: 60, threads: 3,
        actions: actions![
            allocate 8, free_any 8, fill 8, copy 3, read 3, switch_thread 8, host_memory 8, host_free 6, faults 1,
            write_host 20, host_read 6, read_host 14, register_twice 2, change_streams 2, ask 2,
        ],
    },
    Theme {
        name: "kept", lines: 120, memory_mb: 1024, devices: 1, leaning: 100, threads: 2,
        actions: actions![
            keep_address 5, fill_found 16, host_read 3, host_free 1, allocate 6, free_any 6, fill 8, copy 2, read 2,
            create_context 1, use_context 3, destroy_context 1, do_nothing 2, switch_thread 3, change_streams 1,
        ],
    },
    Theme {
        name: "graphs", lines: 600, memory_mb: 1024, devices: 1, leaning: 40, threads: 3,
        actions: actions![
            allocate 10, free_any 10, fill 14, copy 5, read 6, switch_thread 8, change_streams 2,
            simple_graph 5, built_graph 3, launch_graph 10, drop_graph 4, change_graph 3, joined_capture 4, graph_memory 4,
            ask 2, write_host 2, host_read 1,
        ],
    },
    Theme {
        name: "pressure", lines: 400, memory_mb: 256, devices: 1, leaning: 0, threads: 2,
        actions: actions![
            press 40, new_phase 3, wrong_call 2, read 4, switch_thread 6, change_streams 2, ask_for_room 4, trim_pool 1,
            wait 3, copy 3,
        ],
    },
    Theme {
        name: "beside", lines: 600, memory_mb: 256, devices: 1, leaning: 0, threads: 2,
        actions: actions![
            press 20, capture_beside 8, many_captures 1, relaxed_requests 4, launch_graph 6, drop_graph 6,
            read 4, switch_thread 4, new_phase 2,
        ],
    },
    Theme {
        name: "contexts", lines: 500, memory_mb: 512, devices: 1, leaning: 40, threads: 3,
        actions: actions![
            create_context 4, use_context 12, destroy_context 3, reset_primary 1, init_again 2, modules 2, push_context 3, do_nothing 2,
            allocate 12, free_any 12, fill 16, copy 12, read 8, switch_thread 6, change_streams 2, ask 3,
            simple_graph 1, launch_graph 2, drop_graph 1, host_memory 4, write_host 4, host_read 2,
        ],
    },
    Theme {
        name: "devices", lines: 500, memory_mb: 512, devices: 2, leaning: 40, threads: 3,
        actions: actions![
            create_context 4, use_context 12, destroy_context 2, push_context 3, allocate 12, free_any 12,
            fill 16, copy 16, read 8, switch_thread 6, change_streams 2, ask 3, joined_beyond 2,
            simple_graph 1, launch_graph 2, drop_graph 1,
        ],
    },
    Theme {
        name: "own_devices", lines: 500, memory_mb: 512, devices: 2, leaning: 0, threads: 3,
        actions: actions![
            create_context 4, use_context 14, destroy_context 2, push_context 3, free_elsewhere 3, allocate 14, free_any 14,
            fill 18, copy 16, read 6, switch_thread 6, change_streams 2, wait 2, simple_graph 1, launch_graph 2, drop_graph 1,
        ],
    },
    Theme {
        name: "text", lines: 80, memory_mb: 1024, devices: 1, leaning: 60, threads: 2,
        actions: actions![
            say_something 10, allocate 4, free_any 4, fill 4, switch_thread 2,
        ],
    },
    Theme {
        name: "many_contexts", lines: 2400, memory_mb: 256, devices: 1, leaning: 40, threads: 1,
        actions: actions![
            short_context 20, allocate 2, free_any 2, fill 3, read 2, ask_about_a_block 3,
        ],
    },
    Theme {
        name: "together", lines: 700, memory_mb: 256, devices: 1, leaning: 40, threads: 4,
        actions: actions![
            all_at_once 10,
        ],
    },
    Theme {
        name: "references", lines: 700, memory_mb: 256, devices: 1, leaning: 40, threads: 4,
        actions: actions![
            references_at_once 4, storm 4, reference 10, last_reference 1, attach 4, nowhere 6, create_context 2, destroy_context 2, push_context 2,
            use_context 4, allocate_any 10, free_any 8, fill 12, copy 4, read 6, switch_thread 8, change_streams 3, ask 6,
            host_memory 4, host_free 3, write_host 6, host_read 4, ask_about_a_block 2, modules 1,
        ],
    },
    Theme {
        name: "references_scarce", lines: 400, memory_mb: 256, devices: 1, leaning: 0, threads: 3,
        actions: actions![
            press 40, storm 4, reference 3, new_phase 3, read 4, switch_thread 6, change_streams 2, ask_for_room 4, trim_pool 1,
            wait 3, copy 3,
        ],
    },
    Theme {
        name: "references_beyond", lines: 500, memory_mb: 256, devices: 2, leaning: 40, threads: 4,
        actions: actions![
            references_at_once 6, reference 6, nowhere 3, allocate_any 6, free_any 5, fill 6, read 4, switch_thread 4, ask 4,
        ],
    },
    Theme {
        name: "ends", lines: 160, memory_mb: 256, devices: 1, leaning: 100, threads: 3,
        actions: actions![
            end_beside 1,
        ],
    },
    Theme {
        name: "waits", lines: 200, memory_mb: 256, devices: 1, leaning: 100, threads: 4,
        actions: actions![
            wait_beside 1,
        ],
    },
    Theme {
        name: "uploads", lines: 120, memory_mb: 512, devices: 1, leaning: 100, threads: 2,
        actions: actions![
            upload_beside_cache 4, first_use_captured 2, named_then_freed 3, freed_in_its_capture 6,
        ],
    },
    Theme {
        name: "cached", lines: 500, memory_mb: 1024, devices: 1, leaning: 40, threads: 2,
        actions: actions![
            cached_capture 8, cached_contexts 3, launch_graph 16, drop_graph 4, allocate 12, free_any 8, fill 14, read 12,
        ],
    },
    Theme {
        name: "pools", lines: 500, memory_mb: 1024, devices: 1, leaning: 30, threads: 2,
        actions: actions![
            allocate_any 14, free_any 14, fill 12, copy 6, read 5, switch_thread 4, ask_the_pool 6,
            trim_pool 3, ask_about_a_block 6, explicit_pool 3, arrays 4, textures 4, revoke_access 2,
            ask 3, wrong_call 4, request_in_host_function 2, host_memory 2, write_host 3, host_read 2,
        ],
    },
    Theme {
        // All requests have one size: the known fragmentation plays no part.
        name: "behind", lines: 120, memory_mb: 256, devices: 1, leaning: 0, threads: 2,
        actions: actions![
            behind_persistent 6, switch_thread 2, change_streams 1,
        ],
    },
    Theme {
        name: "spin_elsewhere", lines: 300, memory_mb: 1024, devices: 1, leaning: 30, threads: 2,
        actions: actions![
            create_context 3, use_context 6, end_beside_another_context 8, allocate 8, free_any 8, fill 8, read 3,
            switch_thread 3, wait 2,
        ],
    },
    Theme {
        name: "spin", lines: 400, memory_mb: 1024, devices: 1, leaning: 30, threads: 2,
        actions: actions![
            persistent 8, allocate 10, free_any 10, fill 8, read 3, switch_thread 3, wait 2,
        ],
    },
];
