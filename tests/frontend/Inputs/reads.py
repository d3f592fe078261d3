"""Which bytes of a file did a command read?   reads.py FILE COMMAND...

Prints "read once: N bytes" with the number of distinct bytes, or "read twice: A to B" for a range that two reads share, and runs
the command under strace. Its output is not shown; its exit status is.
"""
import os, re, subprocess, sys, tempfile

CALL = re.compile(r"pread64\(\d+<.*>, .*, (\d+)\) = (\d+)$")


def main():
    file, command = os.path.realpath(sys.argv[1]), sys.argv[2:]
    with tempfile.NamedTemporaryFile("r") as log:
        trace = ["strace", "-f", "-y", "-s", "0", "-e", "trace=pread64,read,readv,preadv,preadv2,mmap,copy_file_range,sendfile", "-o", log.name]
        status = subprocess.run([*trace, *command], stdout=subprocess.DEVNULL).returncode
        lines = [line.rstrip() for line in log if f"<{file}>" in line]
    ranges = []
    for line in lines:
        match = CALL.search(line)
        if not match:
            print("read in another way:", line)
            return 1
        ranges.append((int(match[1]), int(match[1]) + int(match[2])))
    ranges.sort()
    for (_, end), (begin, _) in zip(ranges, ranges[1:]):
        if begin < end:
            print(f"read twice: {begin} to {end}")
            return 1
    print("read once:", sum(end - begin for begin, end in ranges), "bytes")
    for begin, end in ranges:
        print(f"  {begin} to {end}")
    return status


if __name__ == "__main__":
    sys.exit(main())
