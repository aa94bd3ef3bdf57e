from on_disk import tmp_path_factory

__all__ = ["tmp_path_factory"]
