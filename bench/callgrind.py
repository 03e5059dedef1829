"""Instructions that a program spends in user space, from callgrind: exact where a clock cannot tell one per cent from none.

What is counted is what a profile says of each source line, whichever function it was inlined into, so it does not matter how the
program was linked. The kernel is not in it. Valgrind knows no SHA instructions, so hashing shows many times its price: a share is
taken of all the rest (Profile.total without libcrypto). Each thread has a profile of its own, so that tasks which work by the clock
can be left out: under valgrind a second holds much less of all other work.
"""
import collections, glob, re, subprocess

COMMAND = ["valgrind", "--tool=callgrind", "--quiet", "--separate-threads=yes", "--fair-sched=yes"]


class Profile:
    def __init__(self, path):
        self.self_cost = collections.Counter()  # (object, file): instructions
        self.calls = []                         # (object and file of the line that calls, callee, with all it did)
        self.home = {}                          # function: the file it was written in
        names = {"o": {}, "l": {}, "n": {}}

        def name(kind, text):
            number, _, rest = text.partition(" ")
            return names[kind].setdefault(number, rest)

        where, file, callee, of_call = None, None, None, False
        for line in open(path, errors="replace"):
            key, eq, value = line.rstrip("\n").partition("=")
            if line[0] in "+-*0123456789":
                cost = int(line.split()[1])
                if of_call:
                    self.calls.append(((where, file), callee, cost))
                else:
                    self.self_cost[where, file] += cost
                of_call = False
            elif not eq:
                continue
            elif key == "calls":
                of_call = True
            elif key == "ob":
                where = name("o", value)
            elif key in ("fl", "fi", "fe"):
                file = name("l", value)
            elif key == "fn":
                self.home[name("n", value)] = file
            elif key == "cfn":
                callee = name("n", value)
            elif key == "cob":
                name("o", value)
            elif key in ("cfi", "cfl"):
                name("l", value)

    def total(self, but=r"libcrypto"):
        return sum(cost for (where, _), cost in self.self_cost.items() if not re.search(but, where or ""))

    def runs(self, functions):
        return any(re.match(functions, name) for name in self.home)

    def inclusive(self, function):
        """what calls of it cost, with all they did"""
        return sum(cost for _, callee, cost in self.calls if re.match(function, callee))

    def of(self, files):
        """in lines of these files (a regular expression), and in whatever they call that is not theirs"""
        ours = lambda file: re.search(files, file or "")
        return sum(cost for (_, file), cost in self.self_cost.items() if ours(file)) + sum(
            cost for (_, file), callee, cost in self.calls if ours(file) and not ours(self.home.get(callee)))


def dump(pid, where):
    """profiles of the threads, of what was spent since the last time; the program was started with --callgrind-out-file=`where`"""
    before = set(glob.glob(where + ".*"))
    subprocess.run(["callgrind_control", "-d", str(pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [Profile(path) for path in set(glob.glob(where + ".*")) - before]
