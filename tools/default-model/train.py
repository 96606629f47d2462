"""train.py: trains the default model against the clock, on shards that `generate.py serve` keeps making.

    python train.py --data DATA --out RUN --seconds 1300 [--from CHECKPOINT] [--start 0.0]

Progress runs from --start to 1 with the time, not with the steps: the learning rate and the mix of row lengths follow it, so
that whatever the machine's speed is, the run ends with its long rows seen and its rate decayed. Matrices learn by Muon
(orthogonalised momentum, scaled to Adam's step size), everything else by AdamW. A checkpoint of bf16 parameters is written
every minute and a half (26 MB, cut in parts by `pack.py`), one with optimizer state beside it for the same machine."""
import argparse
import json
import os
import random
import time

import numpy
import torch

from generate import SHARD
from model import Model

# progress from which on -> share of steps by row length
MIX = [(0.00, {1024: 1.0}),
       (0.15, {8192: 0.50, 1024: 0.35, 32768: 0.15}),
       (0.25, {32768: 0.40, 8192: 0.20, 1024: 0.40}),
       (0.42, {131072: 0.35, 32768: 0.15, 8192: 0.15, 1024: 0.35}),
       (0.90, {131072: 0.25, 32768: 0.15, 8192: 0.15, 1024: 0.45})]
AHEAD = {1024: 200, 8192: 80, 32768: 80, 131072: 60}


def mix_at(progress):
    return [shares for start, shares in MIX if progress >= start][-1]


def rate_at(progress, start):
    """Warm-up over 2 %, constant to 55 %, then straight down to 2 %."""
    warm = min(1.0, (progress - start) / 0.02 + 0.02)
    decay = 1.0 if progress < 0.55 else max(0.02, (1.0 - progress) / 0.45)
    return warm * decay


class Muon:
    """Momentum, orthogonalised by five Newton-Schulz steps, for stacks of matrices of one shape."""

    def __init__(self, params, decay=0.05, momentum=0.95):
        self.decay, self.momentum = decay, momentum
        groups = {}
        for p in params:
            groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.groups = [(shape, ps, torch.zeros(sum(p.numel() // (shape[0] * shape[1]) for p in ps), *shape, device=ps[0].device))
                       for shape, ps in groups.items()]

    @torch.no_grad()
    def step(self, rate):
        for shape, params, state in self.groups:
            grad = torch.cat([p.grad.view(-1, *shape) for p in params])
            state.lerp_(grad, 1 - self.momentum)
            u = grad.lerp(state, self.momentum).bfloat16()
            flip = shape[0] > shape[1]
            if flip:
                u = u.mT
            u = u / (u.norm(dim=(-2, -1), keepdim=True) + 1e-7)
            for _ in range(5):
                a = u @ u.mT
                u = 3.4445 * u + (-4.7750 * a + 2.0315 * a @ a) @ u
            if flip:
                u = u.mT
            u = u.float() * (0.2 * max(shape) ** 0.5)
            at = 0
            for p in params:
                n = p.numel() // (shape[0] * shape[1])
                p.mul_(1 - rate * self.decay).add_(u[at:at + n].reshape(p.shape), alpha=-rate)
                at += n


class Feed:
    """Takes shards as they come; when a length runs dry, an old shard is read again (and counted)."""

    def __init__(self, root):
        self.root, self.used, self.again = root, {}, 0
        self.taken = {}

    def next(self, length):
        folder = os.path.join(self.root, str(length))
        seen = self.taken.setdefault(length, [])
        known = set(seen)
        while True:
            fresh = [n for n in os.listdir(folder) if n.endswith(".npy") and n not in known]
            if fresh:
                name = min(fresh, key=lambda n: n[4:])
                seen.append(name)
                old = False
                break
            if seen:
                name = random.choice(seen)
                self.again += 1
                old = True
                break
            time.sleep(0.2)
        self.used[str(length)] = len(seen)
        return numpy.load(os.path.join(folder, name)), old

    def tell(self, ahead, stop=False):
        path = os.path.join(self.root, "state.json")
        with open(path + ".part", "w") as f:
            json.dump({"used": self.used, "ahead": {str(k): v for k, v in ahead.items()}, "stop": stop}, f)
        os.rename(path + ".part", path)


def wanted(progress):
    """How many shards of each length to keep ready now, looking a little ahead."""
    out = {}
    for at in (progress, min(1.0, progress + 0.12)):
        for length, share in mix_at(at).items():
            out[length] = max(out.get(length, 0), AHEAD[length])
    return out


def exact_runs(hit, weight):
    """How many answers (runs of weight 1) there are, and how many the model got wholly right."""
    on = (weight > 0.99).reshape(-1)
    start = on & ~torch.roll(on, 1)
    run = torch.cumsum(start.long(), 0)
    n = int(run[-1])
    wrong = torch.zeros(n + 1, device=on.device).index_add_(0, run, (on & ~hit.reshape(-1)).float())
    return n, int((wrong[1:] == 0).sum())


def save(path, model, extra=None):
    tensors = {n: p.detach().to(torch.bfloat16).cpu() for n, p in model.named().items()}
    torch.save(dict(config=model.c, tensors=tensors, **(extra or {})), path + ".part")
    os.rename(path + ".part", path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", default="data")
    p.add_argument("--out", default="run")
    p.add_argument("--seconds", type=float, default=1300)
    p.add_argument("--until", type=float, default=0, help="end by this time (seconds since 1970) instead")
    p.add_argument("--start", type=float, default=0.0)
    p.add_argument("--from", dest="source")
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--steps", type=int, default=0, help="stop after so many steps (a trial)")
    p.add_argument("--lengths", default="", help="take turns through these lengths (a trial)")
    p.add_argument("--device", default="cuda")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--tiny", action="store_true", help="a trial on a CPU: a small slice of each shard")
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    log = open(os.path.join(args.out, "log.jsonl"), "a")
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    model = Model(dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
    if args.source:
        model.load_named(torch.load(args.source)["tensors"])
    model.prepare(device)
    if not args.no_compile:
        model.compile()
    named = model.named()
    muon = Muon([q for n, q in named.items() if model.kinds[n] == "matrix"])
    others = [{"params": [q for n, q in named.items() if model.kinds[n] in ("embed", "conv", "small")], "weight_decay": 0.01},
              {"params": [q for n, q in named.items() if model.kinds[n] in ("norm0", "one", "A", "dt")], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(others, lr=args.rate, betas=(0.9, 0.95), eps=1e-10, fused=device.type == "cuda")
    feed = Feed(args.data)
    feed.tell(wanted(args.start))
    trial = [int(x) for x in args.lengths.split(",") if x]
    if not args.tiny:                                           # compile and tune before the clock runs
        t = time.time()
        ids = torch.randint(0, 4000, (128, 1024), device=device)
        for _ in range(3):
            total, balance, _, _ = model.loss(ids, torch.ones(ids.shape, device=device))
            print("forward %.1f s" % (time.time() - t), flush=True)
            (total / ids.numel() + balance).backward()
            torch.cuda.synchronize()
            print("backward %.1f s" % (time.time() - t), flush=True)
        t = time.time()
        for _ in range(5):
            total, balance, _, _ = model.loss(ids, torch.ones(ids.shape, device=device))
            (total / ids.numel() + balance).backward()
        torch.cuda.synchronize()
        print("%.1f ms a step at 1024, %.1f GB" % ((time.time() - t) * 200, torch.cuda.max_memory_allocated() / 1e9), flush=True)
        for q in model.parameters():
            q.grad = None
    began = last_save = time.time()
    end = args.until or began + args.seconds
    step = tokens = 0
    window = time.time()
    random.seed(7)
    while True:
        now = time.time()
        progress = args.start + (1 - args.start) * (now - began) / (end - began)
        if progress >= 1.0 or (args.steps and step >= args.steps):
            break
        if trial:
            length = trial[step % len(trial)]
        else:
            shares = mix_at(progress)
            length = random.choices(list(shares), list(shares.values()))[0]
        array, old = feed.next(length)
        array = torch.from_numpy(array.astype(numpy.int64)).view(2, SHARD // length, length)
        if args.tiny:
            array = array[:, :2, :256].contiguous()
        array = array.to(device, non_blocking=True)
        ids, weight = array[0], array[1].float() / 100
        rate = args.rate * rate_at(progress, args.start)
        for group in adam.param_groups:
            group["lr"] = rate
        total, balance, hit, aligned = model.loss(ids, weight)
        loss = total / aligned.sum()
        (loss + 0.02 * balance).backward()
        norm = torch.nn.utils.clip_grad_norm_(others[0]["params"] + others[1]["params"], 1.0)
        muon.step(rate)
        adam.step()
        for q in model.parameters():
            q.grad = None
        tokens += ids.numel()
        step += 1
        if step % 20 == 0 or trial or step < 5:
            n, right = exact_runs(hit, aligned)
            spoken = aligned > 0.99
            row = dict(step=step, length=length, progress=round(progress, 4), rate=round(rate, 6), loss=round(loss.item(), 4),
                       balance=round(balance.item(), 3), norm=round(norm.item(), 3), tokens=tokens, seconds=round(time.time() - began, 1),
                       answers=n, exact=round(right / max(1, n), 4),
                       token_right=round((hit & spoken).float().sum().item() / max(1, spoken.sum().item()), 4), again=feed.again, old=old,
                       step_s=round(time.time() - now, 3))
            log.write(json.dumps(row) + "\n")
            log.flush()
            feed.tell(wanted(progress))
        if time.time() - last_save > 90:
            save(os.path.join(args.out, "last.pt"), model, dict(progress=progress, tokens=tokens, step=step))
            last_save = time.time()
    save(os.path.join(args.out, "final.pt"), model, dict(progress=progress, tokens=tokens, step=step))
    feed.tell(wanted(progress), stop=True)
    log.write(json.dumps(dict(done=True, step=step, tokens=tokens, seconds=round(time.time() - began, 1),
                              memory=torch.cuda.max_memory_allocated() if device.type == "cuda" else 0)) + "\n")


if __name__ == "__main__":
    main()
