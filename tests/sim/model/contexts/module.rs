//! Modules: names of kernels, the sizes of their parameters, and global variables.
//!
//! Any image is accepted. From PTX text the entries and globals are read, so that queries about a
//! kernel are answered from the text that a real GPU would run. The behaviour of a kernel depends
//! on its name alone.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;

use crate::abi::Handle;
use crate::model::handles::Slab;
use crate::model::work::kernels::Builtin;
use crate::model::world::tag;

pub struct Modules {
    pub modules: Slab<Module>,
    pub functions: Slab<Function>,
}

#[derive(Default)]
pub struct Module {
    /// ID of the context that loaded it; 0 for a library, which serves all.
    pub ctx: u64,
    /// Entries of the PTX text. `None` if it is not PTX: then every built-in kernel is in it.
    pub entries: Option<HashMap<String, Vec<Parameter>>>,
    pub globals: HashMap<String, u64>,
    /// Names of the globals that the host can access, too.
    pub managed: HashSet<String>,
    pub global_addresses: HashMap<String, u64>,
    pub functions: HashMap<String, Handle>,
    /// Names of its texture references. They get handles when it is loaded.
    pub textures: HashMap<String, Handle>,
}

pub struct Function {
    pub name: CString,
    pub builtin: Builtin,
    pub parameters: Vec<Parameter>,
    pub module: Handle,
    /// Contexts, by id.
    pub loaded_in: Vec<u64>,
    /// Parameters that calls have set before an old launch, and whether one has set its shape.
    pub set_parameters: Vec<u8>,
    pub has_shape: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    pub offset: usize,
    pub bytes: usize,
}

impl Default for Modules {
    fn default() -> Modules {
        Modules { modules: Slab::new(tag::MODULE), functions: Slab::new(tag::FUNCTION) }
    }
}

impl Modules {
    /// Returns a function of a module, with the same handle each time.
    pub fn function(&mut self, module: Handle, name: &str) -> Option<Handle> {
        let state = self.modules.find_mut(module)?;
        if let Some(known) = state.functions.get(name) {
            return Some(*known);
        }
        let builtin = Builtin::from_name(name);
        let words = |count: usize| (0..count).map(|i| Parameter { offset: i * 8, bytes: 8 });
        let parameters = match &state.entries {
            Some(entries) => entries.get(name)?.clone(),
            None => words(builtin?.parameter_count()).collect(),
        };
        let builtin = builtin.unwrap_or(Builtin::Opaque);
        let (key, name_text) = (name.to_string(), CString::new(name).ok()?);
        let function = Function {
            name: name_text,
            builtin,
            parameters,
            module,
            loaded_in: Vec::new(),
            set_parameters: Vec::new(),
            has_shape: false,
        };
        let handle = self.functions.insert(function);
        self.modules.find_mut(module)?.functions.insert(key, handle);
        Some(handle)
    }

    pub fn unload(&mut self, module: Handle) -> Option<Module> {
        let state = self.modules.remove(module)?;
        for function in state.functions.values() {
            self.functions.remove(*function);
        }
        Some(state)
    }

    /// Unloads all modules of a destroyed context, whose memory holds their variables. Returns
    /// their number.
    pub fn unload_all_of(&mut self, ctx: u64) -> u64 {
        let all = self.modules.handles_of(|module| module.ctx == ctx);
        all.iter().for_each(|module| _ = self.unload(*module));
        all.len() as u64
    }
}

impl Module {
    pub fn from_ptx(text: &str) -> Module {
        let mut module = Module { entries: Some(HashMap::new()), ..Module::default() };
        let text = without_comments(text);
        let entries = module.entries.as_mut().expect("set just now");
        for rest in text.split(".entry").skip(1) {
            let head = rest.split(['{', ';']).next().unwrap_or("");
            let (name, list) = head.split_once('(').unwrap_or((head, ""));
            let list = list.split(')').next().unwrap_or("");
            entries.insert(name.trim().to_string(), parse_parameters(list));
        }
        for rest in text.split(".global").skip(1) {
            // `ld.global.u64 ...` has the same word in it; a variable follows white space.
            if !rest.starts_with(char::is_whitespace) {
                continue;
            }
            let head = rest.split([';', '=']).next().unwrap_or("");
            if let Some((_, name)) = head.split_once(".texref") {
                module.textures.insert(name.trim().to_string(), 0);
            }
            if let Some((name, _, bytes)) = parse_variable(head) {
                if head.contains(".managed") {
                    module.managed.insert(name.clone());
                }
                module.globals.insert(name, bytes as u64);
            }
        }
        module
    }

    pub fn any() -> Module {
        Module::default()
    }
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn parse_parameters(list: &str) -> Vec<Parameter> {
    let mut next = 0_usize;
    let mut found = Vec::new();
    for item in list.split(',') {
        let Some((_, align, bytes)) = parse_variable(item.trim().trim_start_matches(".param"))
        else {
            continue;
        };
        next = next.next_multiple_of(align.max(1));
        found.push(Parameter { offset: next, bytes });
        next += bytes;
    }
    found
}

/// Name, alignment and size of `.align 8 .b8 name[24]` or `.u64 name`.
fn parse_variable(text: &str) -> Option<(String, usize, usize)> {
    let mut element = None;
    let mut align = None;
    let mut words = text.split_whitespace().peekable();
    let mut name = None;
    while let Some(word) = words.next() {
        if word == ".align" {
            align = words.peek().and_then(|number| number.parse().ok());
        } else if let Some(bytes) = type_bytes(word) {
            element = Some(bytes);
        } else if !word.starts_with('.') && word.parse::<usize>().is_err() {
            name = Some(word);
        }
    }
    let (name, count) = match name?.split_once('[') {
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse().ok()?),
        None => (name?, 1),
    };
    let element = element?;
    Some((name.to_string(), align.unwrap_or(element), element * count))
}

fn type_bytes(word: &str) -> Option<usize> {
    match word {
        ".u64" | ".s64" | ".b64" | ".f64" => Some(8),
        ".u32" | ".s32" | ".b32" | ".f32" => Some(4),
        ".u16" | ".s16" | ".b16" | ".f16" => Some(2),
        ".u8" | ".s8" | ".b8" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_parameters_and_globals_are_read() {
        let text = ".version 7.0\n.visible .global .align 8 .b8 table[24];\n\
            .visible .entry one(.param .u64 one_0, .param .u32 one_1,\n .param .u64 one_2)\n{ ret; }\n\
            .visible .entry two(\n.param .align 8 .b8 two_0[24] // a struct\n)\n{ ld.global.u64 a, [b]; ret; }\n\
            .visible .entry three()\n{ ret; }";
        let module = Module::from_ptx(text);
        let entries = module.entries.unwrap();
        let sizes =
            |name: &str| -> Vec<_> { entries[name].iter().map(|p| (p.offset, p.bytes)).collect() };
        assert_eq!(sizes("one"), [(0, 8), (8, 4), (16, 8)]);
        assert_eq!(sizes("two"), [(0, 24)]);
        assert_eq!(sizes("three"), []);
        assert_eq!(module.globals, HashMap::from([("table".to_string(), 24)]));
    }
}
