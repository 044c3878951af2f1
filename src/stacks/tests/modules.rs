//! Libraries that are loaded and unloaded: rules, modules and symbols belong to the right one.

mod common;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachealloc_stacks::{
    ModuleInfo, capture, module_at, module_names, note_unload, object_range, symbolise,
};
use common::{COMPARED, FRAMES_MAX, Library, build, compare, compared, ours};

/// Lets one test run at a time: the loader's list belongs to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static EPOCH: Cell<u32> = const { Cell::new(0) };
    static STACK: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

extern "C-unwind" fn keep() {
    compare();
    let mut out = [0; FRAMES_MAX];
    let captured = capture(&mut out, 0..0);
    EPOCH.set(captured.epoch);
    STACK.set(out[..captured.count].to_vec());
}

#[test]
fn a_library_at_the_address_of_another() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let build_swap = |name: &str, frame: u32, id: &str| {
        let frame = format!("-DFRAME={frame}");
        build("swap.cpp", name, &[&frame, &format!("-Wl,--build-id=0x{id}"), "-O2"])
    };
    let Some(small) = build_swap("swap_small", 256, "0123456789abcdef") else { return };
    let large = build_swap("swap_large", 1024, "fedcba9876543210").unwrap();
    for notified in [true, false, true] {
        let first = Library::open(&small);
        let place = first.address("swapped");
        compared(|| first.run("swapped", 5, keep));
        let (old_stack, old_epoch) = (STACK.take(), EPOCH.get());
        let old_address = *old_stack.iter().find(|it| object_range(place).contains(it)).unwrap();
        let before = module_at(old_address, old_epoch).unwrap();
        assert!(before.loaded);
        assert_eq!(before.build_id, [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        first.close();
        if notified {
            note_unload();
        }
        let second = Library::open(&large);
        if !notified {
            // Without the notice, the unload is detected at a frame that was never seen before.
            note_unload();
        }
        let reused = second.address("swapped") == place;
        if !reused {
            eprintln!("the loader chose another address: names of both are not compared");
        }
        // Fails if a rule of the first library is used for the second: their frames differ.
        compared(|| second.run("swapped", 5, keep));
        let (new_stack, new_epoch) = (STACK.take(), EPOCH.get());
        assert_ne!(new_epoch, old_epoch);
        let gone = module_at(old_address, old_epoch).unwrap();
        assert_eq!(gone, ModuleInfo { loaded: false, ..before.clone() });
        assert_eq!(gone.path, small.to_str().unwrap());
        let names: Vec<_> = module_names(&[old_address, old_address, 16], old_epoch).collect();
        let name = Some(small.to_str().unwrap().as_bytes());
        assert_eq!(names, [name, name, None]);
        if reused {
            let present = module_at(old_address, new_epoch).unwrap();
            assert_eq!(present.path, large.to_str().unwrap());
            assert!(present.loaded);
            let inside = new_stack.iter().find(|it| object_range(place).contains(it)).unwrap();
            let names = symbolise(&[(old_address, old_epoch), (*inside, new_epoch)]);
            assert_eq!(names[0][0].name, "??");
            assert_eq!(names[0][0].filename, small.to_str().unwrap());
            assert_eq!(names[0][0].line, before.offset);
            assert_eq!(names[1][0].name, "swapped");
            assert!(names[1][0].filename.ends_with("swap.cpp"), "{names:?}");
        }
        second.close();
        note_unload();
    }
}

#[test]
fn inside_a_constructor_and_beside_one() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let Some(path) = build("constructor.cpp", "constructor", &["-O2"]) else { return };
    // SAFETY: no other thread of this program reads the environment meanwhile.
    unsafe { std::env::set_var("STACKS_BOTTOM", format!("{}", compare as *const () as u64)) };
    let before = COMPARED.load(Ordering::Relaxed);
    Library::open(&path).close();
    assert_eq!(COMPARED.load(Ordering::Relaxed), before + 2);
    note_unload();
}

#[test]
fn eight_threads_while_libraries_come_and_go() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let Some(deep) = build("deep.cpp", "busy", &["-O2"]) else { return };
    let visitors: Vec<_> = (0..4)
        .map(|index| {
            let frame = format!("-DFRAME={}", 64 << index);
            build("swap.cpp", &format!("visitor{index}"), &["-O2", &frame]).unwrap()
        })
        .collect();
    let library = Library::open(&deep);
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for shape in ["plain", "virtuals", "realigned", "mixed"] {
                        library.run(shape, 12, compare);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for index in 0..300 {
            let visitor = Library::open(&visitors[index % 4]);
            visitor.run("swapped", 3, compare);
            visitor.close();
            note_unload();
        }
        while rounds.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_main_program_and_no_module() {
    let stack = ours();
    let program = std::env::current_exe().unwrap();
    let epoch = capture(&mut [], 0..0).epoch;
    let info = module_at(stack[0], epoch).unwrap();
    assert_eq!(info.path, program.to_str().unwrap());
    assert!(object_range(stack[0]).contains(&stack[0]));
    assert_eq!(module_at(16, epoch), None);
    assert_eq!(object_range(16), 0..0);
    let unknown = symbolise(&[(16, epoch)]);
    assert_eq!((unknown[0][0].name.as_str(), unknown[0][0].line), ("??", 16));
}

#[test]
fn names_are_demangled_and_inlined_functions_shown() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let Some(path) = build("deep.cpp", "named", &["-O2"]) else { return };
    let library = Library::open(&path);
    let names_of = |library: &Library| {
        library.run("realigned", 3, keep);
        let epoch = EPOCH.get();
        let stack: Vec<_> = STACK.take().into_iter().map(|address| (address, epoch)).collect();
        symbolise(&stack)
    };
    let named = names_of(&library);
    let functions: Vec<_> = named.iter().flatten().map(|symbol| symbol.name.as_str()).collect();
    let has = |part: &str| functions.iter().any(|name| name.contains(part));
    assert!(has("shapes::realigned(int, void (*)())"), "{functions:#?}");
    assert!(has("modules::keep"), "{functions:#?}");
    assert!(named.iter().any(|symbols| symbols.len() > 1), "{named:#?}");
    let realigned =
        named.iter().flatten().find(|symbol| symbol.name.contains("shapes::realigned")).unwrap();
    assert!(realigned.filename.ends_with("deep.cpp") && realigned.line > 1, "{realigned:?}");

    // Without debug information: names of the symbol table, and an offset as the line.
    let path = build("deep.cpp", "unnamed", &["-O2", "-g0"]).unwrap();
    let bare = Library::open(&path);
    let named = names_of(&bare);
    let outer = named.iter().flatten().find(|symbol| symbol.name == "realigned").unwrap();
    assert_eq!(outer.filename, path.to_str().unwrap());
    assert!(outer.line > 0);

    // Only what the loader needs.
    let path = build("deep.cpp", "stripped", &["-O2", "-g0", "-s"]).unwrap();
    let stripped = Library::open(&path);
    let named = names_of(&stripped);
    let of_library: Vec<_> =
        named.iter().flatten().filter(|symbol| symbol.filename == path.to_str().unwrap()).collect();
    assert!(of_library.iter().any(|symbol| symbol.name == "??"), "{of_library:#?}");
}
