import { pieces } from "../model/text.ts";

/** Text from another machine, with unsafe and invisible characters shown as marks. */
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
