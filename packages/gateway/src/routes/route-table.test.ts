import { describe, expect, it } from 'vitest';
import { PathTemplate } from './path-template.js';
import { RouteTree } from './route-table.js';

function buildTree(...templates: string[]): RouteTree<string> {
  const tree = new RouteTree<string>();
  for (const template of templates) tree.add(new PathTemplate(template).steps, template);
  return tree;
}

const find = (tree: RouteTree<string>, path: string) => tree.find(path.slice(1).split('/'));

describe('a route tree', () => {
  it('RouteTree finds the first declared match', () => {
    expect(find(buildTree('/e/params', '/e/{id}'), '/e/params')).toBe('/e/params');
    expect(find(buildTree('/e/{id}', '/e/params'), '/e/params')).toBe('/e/{id}');
    expect(find(buildTree('/e/{a}', '/e/{b}'), '/e/x')).toBe('/e/{a}');
    expect(find(buildTree('/{a}/x/{b}', '/e/{a}/y', '/e/x/y'), '/e/x/y')).toBe('/{a}/x/{b}');
  });

  it('goes back where a text leads nowhere', () => {
    const tree = buildTree('/e/params/x', '/e/{id}/y');
    expect(find(tree, '/e/params/y')).toBe('/e/{id}/y');
    expect(find(tree, '/e/params')).toBeUndefined();
  });

  it('RouteTree matches any number of segments with a deep wildcard', () => {
    const tree = buildTree('/d/list', '/d/{x=**}', '/d/{x=**}/total');
    expect(find(tree, '/d/list')).toBe('/d/list');
    expect(find(tree, '/d/a/b/total')).toBe('/d/{x=**}');
    expect(find(buildTree('/d/{x=**}/total', '/d/{x=**}'), '/d/a/b/total')).toBe('/d/{x=**}/total');
    expect(find(buildTree('/d/{x=**}/total'), '/d/total')).toBe('/d/{x=**}/total');
    expect(find(buildTree('/d/{x=**}/total'), '/d/a/b')).toBeUndefined();
    expect(find(buildTree('/d/{x=**}/{y}/z'), '/d/z')).toBeUndefined();
  });

  it('RouteTree does not match a variable with an empty segment', () => {
    expect(find(buildTree('/e/{id}/x'), '/e//x')).toBeUndefined();
  });
});
