//! Names of files from templates.

use cachealloc_history::name::{Facts, Template, rank};
use cachealloc_history::program;

fn check(template: &str, rank: Option<u32>, expected: &str) {
    let facts = Facts { process_id: 17, host: "node-3.example", rank, sequence: 4 };
    assert_eq!(Template::parse(template).unwrap().expand(&facts), expected, "{template}");
}

#[test]
fn pieces() {
    check("dump.pickle", None, "dump.pickle");
    check("/tmp/%h/dump-%r-%p-%n.pickle", Some(2), "/tmp/node-3.example/dump-2-17-4.pickle");
    check("100%%-%p", None, "100%-17");
    check("%%p", None, "%p");
    check("é%pé", None, "é17é");
}

#[test]
fn missing_rank_also_removes_one_separator() {
    check("dump-%r-%p", None, "dump-17");
    check("dump_%r.pickle", None, "dump.pickle");
    check("%r-%p", None, "17");
    check("dir/%r.pickle", None, "dir/pickle");
    check("dir/%r_%p", None, "dir/17");
    check("dump.%r", None, "dump");
    check("rank%r.pickle", None, "rank.pickle");
    check("%h%r%p", None, "node-3.example17");
    check("a--%r-b", None, "a--b");
    check("%r%p-x", None, "17-x");
}

#[test]
fn invalid_templates() {
    for (template, position, part) in [
        ("", 0, "empty"),
        ("dump-%x", 5, "unknown %x; known are %p"),
        ("é%é", 2, "%é"),
        ("dump%", 4, "incomplete %"),
        ("a\0b", 1, "zero byte"),
        ("%%%q", 2, "%q"),
    ] {
        let problem = Template::parse(template).unwrap_err();
        assert_eq!(problem.position, position, "{template:?}: {problem}");
        assert!(problem.to_string().contains(part), "{template:?}: {problem}");
    }
}

#[test]
fn hosts_make_no_paths() {
    for (host, expected) in
        [("../../etc", "_._.._etc"), ("a b/c", "a_b_c"), ("", "unknown"), ("knöt", "kn_t")]
    {
        let facts = Facts { process_id: 1, host, rank: None, sequence: 0 };
        assert_eq!(Template::parse("%h").unwrap().expand(&facts), expected);
    }
    let long = "h".repeat(500);
    let facts = Facts { process_id: 1, host: &long, rank: None, sequence: 0 };
    assert_eq!(Template::parse("%h").unwrap().expand(&facts).len(), 64);
}

#[test]
fn ranks() {
    let found = |variables: &[(&str, &str)]| {
        rank(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_string())
        })
    };
    assert_eq!(found(&[]), None);
    assert_eq!(found(&[("RANK", "3")]), Some(3));
    assert_eq!(found(&[("SLURM_PROCID", "0"), ("RANK", "3")]), Some(3));
    assert_eq!(found(&[("SLURM_PROCID", "5"), ("RANK", "")]), Some(5));
    assert_eq!(found(&[("PMIX_RANK", " 6 "), ("RANK", "-1")]), Some(6));
    for variable in
        ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"]
    {
        assert_eq!(found(&[(variable, "9")]), Some(9));
    }
}

/// The name comes from the arguments; a possible secret is not in it.
#[test]
fn programs() {
    for (arguments, expected) in [
        ("", ""),
        ("./app --token secret", "app"),
        ("/usr/bin/python3.12 /home/user/train.py --lr 3", "train.py"),
        ("python -u -X dev -W ignore train.py", "train.py"),
        ("python3 -m torch.distributed.run --nproc 2", "torch.distributed.run"),
        ("python3 -c print('secret') train.py", "python3"),
        ("python3", "python3"),
        ("/opt/pythonista/app x", "app"),
    ] {
        assert_eq!(program(arguments.split(' ')), expected, "{arguments}");
    }
}
