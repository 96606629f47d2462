"""Completions know every command and option, in each shell that is here."""
import os
import shutil
import subprocess

import serving

EVENSHARE = os.path.join(serving.BUILD, "evenshare")


def words_of_bash(*line):
    script = "source <($0 completion bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _evenshare; echo \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", script, EVENSHARE, *line], capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


def bash_completes_commands_options_and_choices():
    assert words_of_bash("evenshare", "se") == ["serve"]
    assert words_of_bash("evenshare", "serve", "--ali") == ["--alias"]
    assert words_of_bash("evenshare", "run", "--thinking", "o") == ["on", "off"]
    assert "--config" in words_of_bash("evenshare", "bench", "--")


def zsh_and_fish_can_read_theirs():
    for shell in ("zsh", "fish"):
        script = subprocess.run([EVENSHARE, "completion", shell], capture_output=True, text=True, timeout=60, check=True).stdout
        assert "step-budget" in script and "serve" in script
        if not shutil.which(shell):
            print(f"{shell} is not there: only the words of its completion were looked at")
            continue
        subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, timeout=60, check=True)
    if shutil.which("fish"):
        script = f"{EVENSHARE} completion fish | source; complete -C 'evenshare run --thinki'; complete -C 'evenshare pu'"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60, check=True)
        assert "--thinking" in done.stdout and "pull" in done.stdout, done.stdout + done.stderr


if __name__ == "__main__":
    serving.run([bash_completes_commands_options_and_choices, zsh_and_fish_can_read_theirs])
