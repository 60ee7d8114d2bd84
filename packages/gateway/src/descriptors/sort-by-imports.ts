import type { FileDescriptorProto } from '@bufbuild/protobuf/wkt';
import { DescriptorFault } from './descriptor-fault.js';

/** Puts every file after those it imports, and otherwise keeps the order. */
export function sortByImports(files: ReadonlyMap<string, FileDescriptorProto>) {
  const sorted: FileDescriptorProto[] = [];
  const state = new Map<string, 'open' | 'done'>();
  const visit = (file: FileDescriptorProto): void => {
    if (state.get(file.name) === 'done') return;
    if (state.get(file.name) === 'open')
      throw new DescriptorFault(`${file.name} imports itself, directly or through others`);
    state.set(file.name, 'open');
    for (const name of file.dependency) {
      const imported = files.get(name);
      if (imported) visit(imported);
    }
    state.set(file.name, 'done');
    sorted.push(file);
  };
  for (const file of files.values()) visit(file);
  return sorted;
}
