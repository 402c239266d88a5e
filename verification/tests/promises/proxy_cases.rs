//! Requests that two HTTP parsers may read differently, drawn from a grammar.
//!
//! Each case is one odd request, which may contain a whole second one at a place that one parser takes for a body and
//! another for the next request. A plain request follows.

use testkit::Random;

/// Marks the requests of one case: the odd one, the one hidden in its body, and the last one.
pub const ODD: char = 'a';
const HIDDEN: char = 's';
pub const LAST: char = 'z';

pub const HOST: &str = "pets.example.com";

const ENDS: &str = "\n|\r|\r\r\n|\n\r| \r\n|\t\r\n|\0\r\n|\x0b\r\n";
const SEPARATORS: &str = ":|:\t|:  | : |\t: |:\r\n |:\r\n\t|:\n |:\x0b|:\x0c|::|: ,|:\0|:\u{a0}| ";

/// Length of the tag of a case in decimal digits.
const TAG: usize = 16;

/// Stands for the tag until the end, so that no mutation makes another tag of it.
const PLACEHOLDER: u8 = 1;

/// The headers that mark a request. A proxy replaces `x-request-id`.
fn marks(tag: &str, kind: char) -> String {
    format!("x-case: {tag}{kind}\r\nx-request-id: d-{tag}{kind}\r\n")
}

fn plain(tag: &str, kind: char) -> String {
    format!("GET /livez HTTP/1.1\r\nhost: {HOST}\r\n{}\r\n", marks(tag, kind))
}

/// The request that is hidden in a body.
pub fn hidden(tag: &str) -> String {
    plain(tag, HIDDEN)
}

/// Draws a case. Another tag with equal draws changes only the tag.
pub fn case(random: &mut Random, tag: &str, key: &str) -> Vec<u8> {
    let blank = char::from(PLACEHOLDER).to_string().repeat(TAG);
    let hidden = hidden(&blank);
    let method = rarely(random, 8, "POST", "GET|HEAD|PUT|OPTIONS|DELETE|TRACE|post|CONNECT|P\0ST|");
    let gap = rarely(random, 40, " ", "  |\t|\x0b| \t|\r\n |");
    let version = rarely(
        random,
        40,
        "HTTP/1.1",
        "HTTP/1.0|HTTP/1.2|HTTP/2.0|HTTP/0.9|http/1.1|HTTP/1.1 x|HTTP/1,1|HTTP/11||HTTP/1.1\0",
    );
    let before = rarely(random, 40, "", "\r\n|\n|\r\n\r\n|\r| |\0|x\r\n");
    let mut case = format!("{before}{method}{gap}{}{gap}{version}", target(random)).into_bytes();
    case.extend_from_slice(rarely(random, 40, "\r\n", ENDS).as_bytes());
    case.extend_from_slice(format!("{}accept: */*\r\n", marks(&blank, ODD)).as_bytes());
    let fixed = case.len();

    let is_chunked = random.below(2) == 0;
    let body = match (is_chunked, random.below(4)) {
        (true, _) => chunks(random, &hidden),
        (false, 0) => hidden,
        (false, 1) => format!("{{}}{hidden}"),
        (false, 2) => String::new(),
        (false, _) => "{\"name\":1}".into(),
    };
    let mut lines = vec![format!("host: {HOST}\r\n")];
    if random.below(24) == 0 {
        lines[0] = one_of(random, HOSTS).replace("HOST", HOST);
    }
    // With a key the service reads the body. Its JSON is invalid, so nothing is written.
    if random.below(3) > 0 {
        lines.push(format!("authorization: Bearer {key}\r\n"));
        lines.push("content-type: application/json\r\n".into());
    }
    let framings = if random.below(6) == 0 { 2 } else { 1 };
    for _ in 0..framings {
        let by_chunks = if random.below(8) == 0 { !is_chunked } else { is_chunked };
        let at = random.index(lines.len() + 1);
        lines.insert(at, if by_chunks { transfer_encoding(random) } else { content_length(random, body.len()) });
    }
    if random.below(4) == 0 {
        let at = random.index(lines.len() + 1);
        lines.insert(at, one_of(random, EXTRAS).to_owned());
    }
    case.extend_from_slice(lines.concat().as_bytes());
    case.extend_from_slice(rarely(random, 30, "\r\n", "\n|\r| \r\n|\r\n |\0\r\n|").as_bytes());
    case.extend_from_slice(body.as_bytes());
    if random.below(10) == 0 {
        mutate(random, &mut case, fixed);
    }
    case.extend_from_slice(plain(&blank, LAST).as_bytes());
    let mut digits = tag.bytes().cycle();
    case.iter_mut().filter(|byte| **byte == PLACEHOLDER).for_each(|byte| *byte = digits.next().unwrap());
    case
}

const HOSTS: &str = "|host: \r\n|host: HOST\r\nhost: HOST\r\n|host: HOST\r\nhost: messages.example.com\r\n|\
     host: messages.example.com\r\n|host: HOST:443\r\n|host: HOST.\r\n|host: PETS.example.COM\r\n|\
     host : HOST\r\n|host: HOST\r\n messages.example.com\r\n|host: HOST, messages.example.com\r\n|\
     host: HOST/x\r\n|host: x@HOST\r\n|host: HOST\0\r\n|host:\tHOST\r\n|host: HOST#\r\n|\
     \x20host: HOST\r\n";

const EXTRAS: &str = "connection: close\r\n|connection: keep-alive\r\n|connection: keep-alive, close\r\n|\
     connection: content-length\r\n|connection: transfer-encoding\r\n|connection: host\r\n|\
     connection: x-request-id\r\n|connection: authorization, close\r\n|proxy-connection: close\r\n|\
     keep-alive: timeout=1\r\n|connection: upgrade\r\nupgrade: websocket\r\n|\
     connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n|\
     expect: 100-continue\r\n|expect: 100-continue\r\nexpect: x\r\n|expect: x\r\n|\
     te: trailers, chunked\r\n|trailer: content-length\r\n|max-forwards: 0\r\n|\
     x-original-url: /.well-known/security.txt\r\nx-rewrite-url: /.well-known/security.txt\r\n|x-http-method-override: GET\r\n|\
     content-encoding: gzip\r\n|x: y\r\n z\r\n|x: y\r\n\tz\r\n|x: y\rz: 1\r\n|x: y\nz: 1\r\n|\
     x: y\0\r\n|: y\r\n|x y: z\r\n|no colon\r\n|x: \u{e4}\r\n|\u{e4}: x\r\n|\r\n";

fn content_length(random: &mut Random, length: usize) -> String {
    let names = "Content-Length|CONTENT-LENGTH|content_length|content-length\0|\x0bcontent-length|\
         \x20content-length|xcontent-length";
    let name = rarely(random, 24, "content-length", names);
    let separator = rarely(random, 20, ": ", SEPARATORS);
    let (less, more) = (length.saturating_sub(1), length + 1);
    let value = match random.below(64) {
        0 => format!("+{length}"),
        1 => format!("-{length}"),
        2 => format!("0{length}"),
        3 => format!("{length:#x}"),
        4 => format!("{length}, {length}"),
        5 => format!("{length},0"),
        6 => format!("{length} 0"),
        7 => format!("{length}\0"),
        8 => format!("{length}\x0b"),
        9 => format!("{length};x"),
        10 => format!("\"{length}\""),
        11 => format!("{length}.0"),
        12 => format!("{length}e0"),
        13 => format!("{length}\r\n "),
        14 => one_of(random, "|18446744073709551616|4294967296|9223372036854775808|٥|chunked").into(),
        15 => less.to_string(),
        16 => more.to_string(),
        17 => "0".into(),
        _ => length.to_string(),
    };
    format!("{name}{separator}{value}{}", rarely(random, 40, "\r\n", ENDS))
}

fn transfer_encoding(random: &mut Random) -> String {
    let names = "Transfer-Encoding|TRANSFER-ENCODING|transfer_encoding|transfer-encoding\0|\x0btransfer-encoding|\
         \x20transfer-encoding|transfer-encoding\t";
    let name = rarely(random, 24, "transfer-encoding", names);
    let separator = rarely(random, 20, ": ", SEPARATORS);
    let values = "Chunked|CHUNKED|chunked |chunked,|,chunked|chunked, chunked|chunked, identity|identity, chunked|\
         identity|gzip, chunked|chunked, gzip|xchunked|chunkedx|chunked;q=1|\"chunked\"|chunk ed||\
         chunked\0|\x0bchunked|chunked\x0b|chunked\r\n x|x\r\n chunked|\r\n chunked|chunked\u{a0}|\
         trailers";
    let value = rarely(random, 8, "chunked", values);
    format!("{name}{separator}{value}{}", rarely(random, 40, "\r\n", ENDS))
}

/// A body of chunks. Some contain the hidden request.
fn chunks(random: &mut Random, hidden: &str) -> String {
    let mut body = String::new();
    for _ in 0..random.below(3) {
        let data = match random.below(3) {
            0 => hidden.to_owned(),
            1 => format!("0\r\n\r\n{hidden}"),
            _ => "{}".into(),
        };
        let length = data.len();
        let size = match random.below(50) {
            0 => format!("{length:X}"),
            1 => format!("0{length:x}"),
            2 => format!("000000000000000000000{length:x}"),
            3 => format!("0x{length:x}"),
            4 => format!("+{length:x}"),
            5 => format!("-{length:x}"),
            6 => format!(" {length:x}"),
            7 => format!("{length:x} "),
            8 => format!("1{length:016x}"),
            9 => format!("{:x}", length + 1),
            10 => format!("{:x}", length.saturating_sub(2)),
            11 => format!("{length:x}g"),
            12 => "".into(),
            13 => format!("{length:x}\0"),
            _ => format!("{length:x}"),
        };
        let extensions = ";|;a|;a=b|; a = b|;a=\"b\"|;a=\"\r\n\"|;a=\"\\\"\"|;\n|;a\n|;a=b;c|;\0|\t;a|;a\rb| a";
        let extension = rarely(random, 8, "", extensions);
        body += &format!("{size}{extension}{}{data}", rarely(random, 40, "\r\n", ENDS));
        body += rarely(random, 16, "\r\n", "\n|\r||x\r\n|\r\r\n|\n\r\n");
    }
    let last = "00|0;a|0 | 0|+0|-0|0x0|0;\n||0\0";
    body += rarely(random, 30, "0", last);
    body += rarely(random, 30, "\r\n", ENDS);
    let trailers = "x: y\r\n|content-length: 5\r\n|transfer-encoding: chunked\r\n|host: x\r\n|\
         x-request-id: trailer\r\n|x: y\n|no colon\r\n|: x\r\n| x: y\r\n|x: y\r\n z\r\n|x\0: y\r\n|\n|\r";
    body += rarely(random, 10, "", trailers);
    body + rarely(random, 30, "\r\n", "\n|\r||\r\r\n| \r\n")
}

/// The path that a rule of the proxy blocks, and two that it does not block.
const PATHS: &str = "/.well-known/security.txt|/livez|/v1/pets";

pub fn target(random: &mut Random) -> String {
    if random.below(3) > 0 {
        return "/v1/pets".into();
    }
    let path = one_of(random, PATHS);
    let (slash, name) = path.split_at(1);
    let at = 1 + random.index(name.len());
    let encoded = format!("{}%{:02x}{}", &path[..at], path.as_bytes()[at], &path[at + 1..]);
    match random.below(44) {
        0 => format!("http://{HOST}{path}"),
        1 => format!("https://{HOST}{path}"),
        2 => format!("HTTP://{}{path}", HOST.to_uppercase()),
        3 => format!("http://messages.example.com{path}"),
        4 => format!("http://{HOST}:80{path}"),
        5 => format!("http://x@{HOST}{path}"),
        6 => format!("http://{path}"),
        7 => format!("http:{path}"),
        8 => format!("ftp://{HOST}{path}"),
        9 => format!("http://{HOST}"),
        10 => format!("http://{HOST}?{path}"),
        11 => format!("http://{HOST}#{path}"),
        12 => one_of(random, "*|pets.example.com:443|pets.example.com||?|/|//|/%|/%2|/%zz|#").to_string(),
        13 => encoded.to_uppercase(),
        14 => format!("{slash}%2f{name}"),
        15 => format!("/{path}"),
        16 => format!("//x{path}"),
        17 => format!("/.{path}"),
        18 => format!("/%2e{path}"),
        19 => format!("/..{path}"),
        20 => format!("/livez/..{path}"),
        21 => format!("/livez/%2e%2e{path}"),
        22 => format!("/livez/..%2f{name}"),
        23 => format!("/livez/..;{path}"),
        24 => format!("/livez;x/..{path}"),
        25 => format!("/;{path}"),
        26 => format!("{path}/"),
        27 => format!("{path}/."),
        28 => format!("{path}/../livez"),
        29 => format!("{path};x"),
        30 => format!("{path}%00"),
        31 => format!("{path}%20"),
        32 => format!("{path}%3f"),
        33 => format!("{path}#x"),
        34 => format!("{path}?x"),
        35 => format!("{path}%"),
        36 => format!("{path}%zz"),
        37 => path.replace('/', "\\"),
        38 => format!("/\\{name}"),
        39 => path.to_uppercase(),
        40 => {
            format!("{path}{}", one_of(random, "\u{e4}|\t|\x0b|\0|\x7f| x|\"|<|^|{"))
        }
        41 => format!("/%c0%af{name}"),
        42 => encoded.replace('%', "%25"),
        _ => encoded,
    }
}

/// Changes a few bytes behind the headers that mark the request.
fn mutate(random: &mut Random, case: &mut Vec<u8>, fixed: usize) {
    const BYTES: &[u8] = b"\r\n\0 \t:;,#%/0a\x0b\x7f\x80";
    for _ in 0..=random.below(2) {
        let at = fixed + random.index(case.len() - fixed);
        let byte = BYTES[random.index(BYTES.len())];
        match random.below(3) {
            _ if case[at] == PLACEHOLDER => {}
            0 => case[at] = byte,
            1 => case.insert(at, byte),
            _ => drop(case.remove(at)),
        }
    }
}

/// Draws one of the texts between vertical bars.
pub fn one_of<'t>(random: &mut Random, choices: &'t str) -> &'t str {
    let count = choices.split('|').count();
    choices.split('|').nth(random.index(count)).unwrap()
}

/// Draws an odd text once in `every` draws, and `usual` otherwise.
pub fn rarely<'t>(random: &mut Random, every: u64, usual: &'t str, odd: &'t str) -> &'t str {
    if random.below(every) == 0 { one_of(random, odd) } else { usual }
}
