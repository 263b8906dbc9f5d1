"""Draws docs/results.svg from real runs: accuracy of the demo, time and memory beside PyTorch.

    build/megalith train ... --json > demo.json          # the command of ./do demo
    python3 tools/torch_bench.py --json > bench.json     # its last line
    python3 tools/plot.py demo.json bench.json > docs/results.svg
"""
import json
import statistics
import sys

WIDTH, HEIGHT = 860, 250
COLOURS = ["#2b6cb0", "#a0aec0", "#718096"]


def text(x, y, words, size=12, anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{words}</text>')


def accuracy(lines, x, y, w, h):
    """Test accuracy after each epoch."""
    points = [(e["epoch"], 100 * e["test_accuracy"]) for e in lines
              if "test_accuracy" in e and "final" not in e]
    low, high = 80.0, 95.0
    last = points[-1][0]
    at = [(x + w * e / last, y + h * (high - max(a, low)) / (high - low)) for e, a in points]
    out = [text(x, y - 22, "Fashion-MNIST, test accuracy in %", 13, weight="bold")]
    for level in (80, 85, 90, 95):
        ly = y + h * (high - level) / (high - low)
        out.append(f'<line x1="{x}" y1="{ly:.0f}" x2="{x + w}" y2="{ly:.0f}" stroke="#e2e8f0"/>')
        out.append(text(x - 6, ly + 4, level, 11, "end"))
    path = " ".join(f"{px:.0f},{py:.0f}" for px, py in at)
    out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>')
    for (px, py), (epoch, a) in zip(at, points):
        out.append(f'<circle cx="{px:.0f}" cy="{py:.0f}" r="3" fill="{COLOURS[0]}"/>')
        out.append(text(px - 4, py - 8, f"{a:.1f}", 11, "end"))
        out.append(text(px, y + h + 16, epoch, 11, "middle"))
    out.append(text(x + w / 2, y + h + 32, "epoch", 11, "middle"))
    return out


def bars(title, unit, rows, x, y, w):
    out = [text(x, y - 22, title, 13, weight="bold")]
    most = max(value for _, value in rows)
    for i, (name, value) in enumerate(rows):
        by = y + 52 * i
        out.append(text(x, by + 8, name, 11))
        out.append(f'<rect x="{x}" y="{by + 13}" width="{(w - 60) * value / most:.0f}" height="18" '
                   f'fill="{COLOURS[i]}"/>')
        out.append(text(x + (w - 60) * value / most + 6, by + 27, f"{value:.2f} {unit}", 12))
    return out


def main():
    demo = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
    bench = [json.loads(line) for line in open(sys.argv[2]) if line.startswith("{")][-1]
    seconds = [(name, statistics.median(times)) for name, times in bench["seconds"].items()]
    memory = [(name, bytes_ / 2**30) for name, bytes_ in bench["rss"].items()]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" fill="#1a202c">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    out += accuracy(demo, 40, 50, 230, 150)
    out += bars(f"{bench['model']}, batch {bench['batch']}: seconds per step", "s",
                seconds, 320, 50, 270)
    out += bars("peak memory of the process", "GiB", memory, 600, 50, 250)
    print("\n".join(out + ["</svg>"]))


main()
