//! A terminal for tests: a real pseudo-terminal to run the binary in, and just enough of an emulator to see what is left
//! on its screen.
#![allow(dead_code, reason = "every test file uses its part")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::Chars;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A program that runs in a terminal, and everything it has written so far.
pub(crate) struct Terminal {
    controller: File,
    pub(crate) child: Child,
    pub(crate) written: String,
    bytes: Vec<u8>,
}

impl Terminal {
    pub(crate) fn run(command: Command, columns: u16) -> Self {
        Self::open(command, columns, false)
    }

    /// The same, where somebody sits at the terminal.
    pub(crate) fn attended(command: Command, columns: u16) -> Self {
        Self::open(command, columns, true)
    }

    /// Types something.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.controller.write_all(text.as_bytes()).unwrap();
    }

    fn open(mut command: Command, columns: u16, attended: bool) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let no_controlling_terminal = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let user = OpenOptions::new().read(true).write(true).custom_flags(no_controlling_terminal).open(name).unwrap();
        tcsetwinsize(&user, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let output = Stdio::from(user.try_clone().unwrap());
        let input = if attended { Stdio::from(user.try_clone().unwrap()) } else { Stdio::null() };
        let child = command.stdin(input).stdout(output).stderr(user).spawn().unwrap();
        Self { controller: controller.into(), child, written: String::new(), bytes: Vec::new() }
    }

    /// Reads until this was written.
    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.written.contains(text) {
            assert!(self.read(), "the program ended without writing {text:?}:\n{}", self.written);
        }
    }

    /// Reads until the program has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        while self.read() {}
        self.child.wait().unwrap()
    }

    /// A terminal that nobody writes to any more answers with an error or with nothing.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        let count = self.controller.read(&mut piece).unwrap_or(0);
        self.bytes.extend_from_slice(&piece[..count]);
        self.written = String::from_utf8_lossy(&self.bytes).into_owned();
        count > 0
    }

    /// What a person sees, line by line. Understands what the program is known to write and fails on anything else. Wide
    /// characters count as one column, which is as good as two while a line keeps its beginning.
    pub(crate) fn screen(&self) -> Vec<String> {
        let mut lines: Vec<Vec<char>> = vec![Vec::new()];
        let (mut at, mut column) = (0, 0);
        let mut rest = self.written.chars();
        while let Some(next) = rest.next() {
            match next {
                '\r' => column = 0,
                '\n' => {
                    at += 1;
                    if at == lines.len() {
                        lines.push(Vec::new());
                    }
                }
                '\x1b' => match sequence(&mut rest) {
                    (up, 'A') => at -= up.parse::<usize>().unwrap(),
                    (_, 'J') => {
                        lines.truncate(at + 1);
                        lines[at].truncate(column);
                    }
                    (_, 'K') => lines[at].truncate(column),
                    (_, 'm' | 'h' | 'l') => {}
                    other => panic!("a sequence that the emulator does not know: {other:?}"),
                },
                shown => {
                    match lines[at].get_mut(column) {
                        Some(old) => *old = shown,
                        None => lines[at].push(shown),
                    }
                    column += 1;
                }
            }
        }
        lines.into_iter().map(String::from_iter).collect()
    }
}

/// The parameters and the final letter of a control sequence.
fn sequence(rest: &mut Chars<'_>) -> (String, char) {
    assert_eq!(rest.next(), Some('['));
    let mut parameters = String::new();
    loop {
        match rest.next() {
            Some(letter) if letter.is_ascii_alphabetic() => return (parameters, letter),
            Some(other) => parameters.push(other),
            None => panic!("the output ends inside a control sequence"),
        }
    }
}
