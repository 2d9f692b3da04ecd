"""Who reads with difficulty, reads our outputs too: axe-core, and contrast as it is computed.

axe leaves the contrast of much of a running notebook undecided, so it is computed here as well.
"""

from __future__ import annotations

from typing import Any

from axe_core_python.base import AXE_SCRIPT
from browser.lab import Tab

#: What is ours in a cell's output; the rest is the front end's own.
OURS = ".jp-OutputArea-output .turncell, .jp-OutputArea-output .jupyter-widgets"
SERIOUS = ("serious", "critical")
OPEN = "area => area.querySelectorAll('.turncell details').forEach(one => { one.open = true; })"
AXE = f"""async area => {{
  const ours = [...area.querySelectorAll('{OURS}')];
  ours.forEach((one, place) => one.setAttribute('data-axe', place));
  const include = ours.map((_, place) => [`[data-axe="${{place}}"]`]);
  try {{
    const {{violations, passes}} = await axe.run({{include}});
    return [violations, passes.length];
  }} finally {{ ours.forEach(one => one.removeAttribute('data-axe')); }}
}}"""
#: Paints every background behind a text, then the text's colour, into one pixel.
CONTRAST = f"""area => {{
  const pixel = new OffscreenCanvas(1, 1).getContext('2d', {{willReadFrequently: true}});
  const paint = (colour, alpha) => {{
    pixel.globalAlpha = alpha; pixel.fillStyle = colour; pixel.fillRect(0, 0, 1, 1);
    const light = [...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  }};
  const read = [];
  const walk = root => {{
    const words = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {{
      const element = words.currentNode.parentElement, style = getComputedStyle(element);
      if (!words.currentNode.data.trim() || !element.checkVisibility()) continue;
      const above = []; for (let e = element; e; e = e.parentElement) above.unshift(e);
      let back = paint('white', 1), alpha = 1;
      for (const one of above) {{
        const its = getComputedStyle(one); alpha *= its.opacity;
        back = paint(its.backgroundColor, 1);
      }}
      const [low, high] = [back, paint(style.color, alpha)].sort((a, b) => a - b);
      const size = parseFloat(style.fontSize), bold = style.fontWeight >= 700;
      const wanted = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
      read.push([words.currentNode.data.trim().slice(0, 60), (high + 0.05) / (low + 0.05), wanted]);
    }}
  }};
  area.querySelectorAll('{OURS}').forEach(walk);
  return read;
}}"""


def faults(tab: Tab, index: int) -> list[str]:
    """What is hard or impossible to read of ours below a cell; folded parts are opened first."""
    page, area = tab.page, tab.output(index)
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE_SCRIPT)
    area.evaluate(OPEN)
    violations, passed = area.evaluate(AXE)
    assert passed, "axe has looked at nothing"
    bad = [rule for rule in violations if rule["impact"] in SERIOUS]
    found = [f"{rule['id']}: {node['html'][:90]} {_why(node)}" for rule in bad
             for node in rule["nodes"]]  # fmt: skip
    return found + pale(tab, index)


def pale(tab: Tab, index: int) -> list[str]:
    """The texts of ours whose contrast with what is behind them is too low (WCAG AA)."""
    read: list[tuple[str, float, float]] = tab.output(index).evaluate(CONTRAST)
    assert read, "no text was read"
    return [f"contrast {ratio:.2f} of {wanted}: {text!r}" for text, ratio, wanted in read
            if ratio < wanted]  # fmt: skip


def _why(node: dict[str, Any]) -> str:
    return "; ".join(check["message"] for check in node["any"] + node["all"] + node["none"])
