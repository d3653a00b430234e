import { pieces } from "../model/text.ts";

/** Text of another machine, as text: nothing in it is obeyed, and what cannot be seen is shown. */
export function Text({ children, tabs = false }: { children: string; tabs?: boolean }) {
  return (
    <bdi>
      {pieces(children, { tabs }).map((piece) =>
        "text" in piece ? (
          piece.text
        ) : (
          <span class="hostile" title={piece.name}>
            {piece.mark}
          </span>
        ),
      )}
    </bdi>
  );
}
