import type { DescMethod } from '@bufbuild/protobuf';

/** Field numbers on the way from a file to a method in its descriptor. */
const SERVICES = 6;
const METHODS = 2;

/** The first paragraph of a method's leading comment, or its name if the comments were left out. */
export function methodSummary(method: DescMethod): string {
  const { file } = method.parent;
  const path = [
    SERVICES,
    file.services.indexOf(method.parent),
    METHODS,
    method.parent.methods.indexOf(method),
  ];
  const location = file.proto.sourceCodeInfo?.location.find(
    (location) =>
      location.path.length === path.length && path.every((step, i) => location.path[i] === step),
  );
  const [paragraph = ''] = (location?.leadingComments ?? '').trim().split(/\n\s*\n/);
  return paragraph.replace(/\s+/g, ' ') || method.name;
}
