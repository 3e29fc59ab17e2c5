"""Chat templates of models that call tools and that reason, for the demo model; and the parameters of a tool."""

import pathlib
import shutil

from cluster import DEMO, pack

TOOLS = (
    "{% if tools %}Tools: {{ tools | tojson }}. Call one as <tool_call>\n{...}\n</tool_call>\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
# The generation prompt opens the reasoning, as those of DeepSeek and of Qwen's thinking models do.
THINKING = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n"
            "{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")
SCHEMA = {
    "type": "object", "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 7}}, "required": ["days"],
    "additionalProperties": False
}


def pack_with(template, directory):
    """A pack of the demo model with this template, in `directory`."""
    source = pathlib.Path(directory) / "demo"
    shutil.copytree(DEMO, source)
    (source / "chat_template.jinja").write_text(template)
    return pack(source, f"{directory}/templated")
